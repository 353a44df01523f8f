"""Tensors of a model by their Hugging Face names, from a folder of safetensors.

Only safetensors are read: a pickle may run code, so `.bin` and `.pt` files are refused. The
package is imported where a file is opened: random weights and GGUF files do without.
"""

import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from models.config import read_json
from models.errors import ModelError, unreadable

if TYPE_CHECKING:
    from safetensors import safe_open

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
_COMPARED_ROWS = 1024
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class TensorSource(Protocol):
    """Where a model's tensors come from."""

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor `name` (Hugging Face's name, `model.` included), floating point, row
        major, of exactly this shape; ModelError names a missing or misshapen one."""


def check_tensor(name: str, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The tensor itself if it has the shape and a dtype that can be served."""
    check_tensor_shape(name, tuple(tensor.shape), shape)
    if tensor.dtype not in FLOATS:
        raise ModelError(
            f"tensor {name} is {tensor.dtype}; supported: float32, float16, bfloat16"
        )
    return tensor


def check_tensor_shape(name: str, found: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if found != shape:
        raise ModelError(f"tensor {name} has shape {list(found)}, expected {list(shape)}")


class StoredTensors(TensorSource, Protocol):
    """A source that can tell what its files hold, by the names that they use."""

    @property
    def names(self) -> Collection[str]:
        """All tensors' names."""

    def name_of(self, name: str) -> str | None:
        """How the files call the tensor `name`; None where they lack it."""


class SafetensorsFolder:
    """A folder with one or many `*.safetensors`. As in transformers `model.safetensors` comes
    before an index and its files; where there is neither, all files are read together.
    `other_files` are those that are not read."""

    def __init__(self, folder: Path) -> None:
        chosen = _chosen(folder)
        self.other_files = sorted({*folder.glob("*.safetensors")} - {*chosen})
        self._found: dict[str, tuple[str, Path]] = {}
        for path in chosen:
            with _opened(path) as file:
                self._add(path, file.keys())

    @property
    def names(self) -> Collection[str]:
        return [stored for stored, _ in self._found.values()]

    def name_of(self, name: str) -> str | None:
        found = self._found.get(name)
        return found and found[0]

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in self._found:
            raise ModelError(f"tensor {name} is missing")
        stored, path = self._found[name]
        with _opened(path) as file:
            return check_tensor(name, file.get_tensor(stored), shape)

    def use_head_as_embedding(self) -> None:
        """For a file that stores a tied matrix by the head's name alone."""
        self._found[EMBEDDING] = self._found.pop(HEAD)

    def head_is_embedding(self) -> bool:
        """Whether both are stored with the same values, compared a few rows at a time."""
        (head, head_path), (embedding, path) = self._found[HEAD], self._found[EMBEDDING]
        with _opened(head_path) as head_file, _opened(path) as file:
            ours, theirs = head_file.get_slice(head), file.get_slice(embedding)
            shape = ours.get_shape()
            if shape != theirs.get_shape():
                return False
            starts = range(0, shape[0], _COMPARED_ROWS)
            blocks = (slice(at, at + _COMPARED_ROWS) for at in starts)
            return all(torch.equal(ours[r], theirs[r]) for r in blocks)

    def _add(self, path: Path, names: Iterable[str]) -> None:
        for stored in names:
            name = _full_name(stored)
            if name in self._found:
                other, place = self._found[name]
                raise ModelError(
                    f"tensor {name} is stored twice: as {other} in {place.name} and as "
                    f"{stored} in {path.name}"
                )
            self._found[name] = stored, path


def _full_name(stored: str) -> str:
    """The name in transformers, which takes files of the decoder alone too, whose names lack
    `model.`, and files of a model around it, whose names have it once more."""
    shorter = re.sub(r"^model\.(?=model\.|lm_head\.)", "", stored)
    return shorter if shorter.startswith(("model.", "lm_head.")) else f"model.{shorter}"


def _chosen(folder: Path) -> list[Path]:
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.exists():
        return [whole]
    if index.exists():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict):
            raise ModelError(f"{index} has no weight_map")
        return [folder / file for file in sorted({str(file) for file in names.values()})]
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelError(f"{folder} has no *.safetensors (other formats are not read)")
    return files


def _opened(path: Path) -> "safe_open":
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise unreadable(path, str(error)) from error
