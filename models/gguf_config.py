"""A decoder's config from the metadata of a GGUF file (keys: ggml's docs/gguf.md)."""

from dataclasses import dataclass

import numpy as np

from models.config import (
    ModelConfig,
    check_family,
    check_shape,
    refuse_sinks,
    refuse_soft_caps,
)
from models.errors import ModelError
from models.gguf_file import GgufFile
from models.rope import Rope


def from_gguf(file: GgufFile) -> ModelConfig:
    """Config of a GGUF model. ModelError names what is missing or unsupported. Biases,
    norms and tied heads are told by which tensors the file has."""
    family = check_family(file.metadata.get("general.architecture"))
    refuse_soft_caps(file.metadata, f"{family}.")
    refuse_sinks(file.tensors)
    values = _Values(file, family)
    heads = values.whole("attention.head_count")
    hidden = values.whole("embedding_length")
    head_dim = values.whole("attention.key_length", hidden // heads)
    if values.whole("rope.dimension_count", head_dim) != head_dim:
        raise ModelError("partial rotary embedding is not supported")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"{file.path} has no tensor token_embd.weight")
    window = file.metadata.get(f"{family}.attention.sliding_window")
    config = ModelConfig(
        family=family,
        vocab_size=embedding.shape[0],
        hidden_size=hidden,
        intermediate_size=values.whole("feed_forward_length"),
        num_layers=values.whole("block_count"),
        num_q_heads=heads,
        num_kv_heads=values.whole("attention.head_count_kv", heads),
        head_dim=head_dim,
        norm_eps=values.real("attention.layer_norm_rms_epsilon", 1e-6),
        rope=_rope(values, head_dim),
        context_tokens=values.whole("context_length"),
        window=window if isinstance(window, int) and window > 0 else None,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
        tied="output.weight" not in file.tensors,
        eos_ids=gguf_eos_ids(file),
    )
    check_shape(config)
    return config


@dataclass(frozen=True, slots=True)
class _Values:
    file: GgufFile
    family: str

    def whole(self, name: str, default: int | None = None) -> int:
        value = self.file.metadata.get(f"{self.family}.{name}", default)
        if not isinstance(value, int) or value < 1:
            raise ModelError(
                f"{self.file.path}: {self.family}.{name} is {value!r}, not a positive number"
            )
        return value

    def real(self, name: str, default: float) -> float:
        value = self.file.metadata.get(f"{self.family}.{name}", default)
        if not isinstance(value, int | float):
            raise ModelError(f"{self.file.path}: {self.family}.{name} is no number: {value!r}")
        # Stored as float32: the shortest decimal that means the same is what was written.
        return float(str(np.float32(value)))


def _rope(values: _Values, head_dim: int) -> Rope:
    theta = values.real("rope.freq_base", 10000.0)
    kind = values.file.metadata.get(f"{values.family}.rope.scaling.type", "none")
    if kind == "linear":
        return Rope(theta, (values.real("rope.scaling.factor", 1.0),) * (head_dim // 2))
    if kind != "none":
        raise ModelError(f"rope scaling {kind!r} is not supported (supported: none, linear)")
    stored = values.file.tensors.get("rope_freqs.weight")
    if stored is None:
        return Rope(theta)
    # Llama 3's scaling arrives ready made: one float32 divisor a frequency.
    data = np.fromfile(values.file.path, "<f4", head_dim // 2, offset=stored.offset)
    return Rope(theta, tuple(float(divisor) for divisor in data))


def gguf_eos_ids(file: GgufFile) -> tuple[int, ...]:
    """End-of-sequence and end-of-turn ids that the file names."""
    names = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    found = (file.metadata.get(name) for name in names)
    return tuple(dict.fromkeys(token for token in found if isinstance(token, int)))
