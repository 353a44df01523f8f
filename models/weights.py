"""Tensors of a model by their Hugging Face names, from a folder of safetensors.

Only safetensors are read: a pickle may run code, so `.bin` and `.pt` files are refused. The
package is imported where a file is opened: random weights and GGUF files do without.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from models.config import read_json, refuse_sinks
from models.errors import ModelError

if TYPE_CHECKING:
    from safetensors import safe_open

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class TensorSource(Protocol):
    """Where a model's tensors come from."""

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor `name` (Hugging Face's name, `model.` included), floating point, row
        major, of exactly this shape; ModelError names a missing or misshapen one."""


def check_tensor(name: str, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The tensor itself if it has the shape and a dtype that can be served."""
    if tuple(tensor.shape) != shape:
        raise ModelError(
            f"tensor {name} has shape {list(tensor.shape)}, expected {list(shape)}"
        )
    if tensor.dtype not in FLOATS:
        raise ModelError(
            f"tensor {name} is {tensor.dtype}; supported: float32, float16, bfloat16"
        )
    return tensor


class SafetensorsFolder:
    """A folder with one or many `*.safetensors`, with or without an index file."""

    def __init__(self, folder: Path) -> None:
        self._files = _files_by_tensor(folder)
        refuse_sinks(self._files)

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        from safetensors import SafetensorError

        path = self._files.get(name)
        if path is None:
            raise ModelError(f"tensor {name} is missing")
        with _opened(path) as file:
            try:
                tensor = file.get_tensor(name)
            except SafetensorError as error:  # an index that names the wrong file, say
                raise ModelError(f"cannot read tensor {name} of {path}: {error}") from error
        return check_tensor(name, tensor, shape)


def _files_by_tensor(folder: Path) -> Mapping[str, Path]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict):
            raise ModelError(f"{index} has no weight_map")
        return {str(name): folder / str(file) for name, file in names.items()}
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelError(f"{folder} has no *.safetensors (other formats are not read)")
    found: dict[str, Path] = {}
    for path in files:
        with _opened(path) as file:
            found.update(dict.fromkeys(file.keys(), path))
    return found


def _opened(path: Path) -> "safe_open":
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error
