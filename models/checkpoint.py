"""Opens a model's files: makes the config agree with the tensors, and accounts for each tensor.

A tensor that the config does not know is either harmless, and is named in a warning, or it
would change the answers, and the model is refused.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from models.config import ModelConfig
from models.errors import ModelError
from models.gguf_config import from_gguf
from models.gguf_file import read_gguf
from models.hf_config import from_hf
from models.layers import LayerReader
from models.linear import plain
from models.weights import EMBEDDING, HEAD, SafetensorsFolder, StoredTensors, TensorSource

_HARMLESS = re.compile(
    r"rotary_emb\.inv_freq$"  # computed from the config instead
    r"|\.attn_rot_embd\.weight$"  # the same in GGUF files
    r"|(^|\.)mtp(_layers)?\."  # heads that draft tokens ahead
)
_COMPUTED = re.compile(
    r"(^|\.)(layers|blk)\.\d+\.|embed_tokens|token_embd|lm_head|^output|norm|^rope|^position"
)
"""Names of what a decoder computes with: layers, tables, norms, positions."""
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`unused`: names of tensors (numbers as *) and files that are not read."""

    config: ModelConfig
    source: TensorSource
    unused: tuple[str, ...]


def open_checkpoint(path: Path) -> Checkpoint:
    """A folder in Hugging Face's layout, or a GGUF file. Tensors' data is not read, but where
    a tied head has to be compared. ModelError where the model would not be the one meant."""
    return _folder(path) if path.is_dir() else _gguf(path)


def tensors_of(config: ModelConfig) -> tuple[str, ...]:
    """Names of all that a decoder is read from."""
    names = _Names()
    LayerReader(config, names, torch.float32, plain).decoder()
    return tuple(names.read)


def _folder(path: Path) -> Checkpoint:
    if (path / "adapter_config.json").exists():
        raise ModelError(
            f"{path} has an adapter (adapter_config.json), which is not applied: merge it "
            "into the weights, or remove it to serve them without"
        )
    config, source = from_hf(path), SafetensorsFolder(path)
    config = _with_head(config, source)
    read = {*tensors_of(config), *([HEAD] if config.tied else [])}
    unused = _judged(source, read)
    return Checkpoint(config, source, (*unused, *(file.name for file in source.other_files)))


def _gguf(path: Path) -> Checkpoint:
    from models.gguf_weights import GgufWeights

    file = read_gguf(path)
    config = from_gguf(file)
    source = GgufWeights(file, config)
    return Checkpoint(config, source, _judged(source, tensors_of(config)))


def _with_head(config: ModelConfig, source: SafetensorsFolder) -> ModelConfig:
    """As in transformers, a stored head that differs from the embedding is used even where
    the config ties them, and either of a tied pair may be stored alone."""
    head, embedding = source.name_of(HEAD), source.name_of(EMBEDDING)
    if not config.tied and head is None:
        raise ModelError(f"tensor {HEAD} is missing (tie_word_embeddings is false)")
    if not config.tied or head is None:
        return config
    if embedding is None:
        source.use_head_as_embedding()
        return config
    return replace(config, tied=source.head_is_embedding())


def _judged(source: StoredTensors, read: Iterable[str]) -> tuple[str, ...]:
    used = {source.name_of(name) for name in read}
    unread = [name for name in sorted(source.names) if name not in used]
    meant = [n for n in unread if _COMPUTED.search(n) and not _HARMLESS.search(n)]
    if meant:
        more = f" and {len(meant) - _NAMED} more" if len(meant) > _NAMED else ""
        raise ModelError(
            "tensors that the config does not know would change the answers: "
            f"{', '.join(meant[:_NAMED])}{more}"
        )
    return tuple(dict.fromkeys(re.sub(r"(?<=\.)\d+(?=\.)", "*", name) for name in unread))


class _Names:
    """A `TensorSource` that only notes what is asked for."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        self.read.append(name)
        return torch.empty(shape, device="meta")
