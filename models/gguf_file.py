"""The header of a GGUF file: metadata, and where each tensor lies.

Read directly because the tokenizer's arrays (100,000 strings) take the `gguf` package
seconds, in the front end and in the engine alike. Format: ggml's docs/gguf.md, versions 2
and 3, little-endian.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from models.errors import ModelError, unreadable

Value = bool | int | float | str | list["Value"]

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """`shape` is row major (the file has it reversed); `kind` is ggml's type number and
    `offset` counts bytes from the start of the file."""

    shape: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What the header says. `tensors` by their GGUF names."""

    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, GgufTensor]


def read_gguf(path: Path) -> GgufFile:
    """Parse the header; the tensors' data is not touched. ModelError on what is no GGUF."""
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return _parse(path, data)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    except (struct.error, ValueError, KeyError, IndexError, MemoryError) as error:
        raise ModelError(f"{path} is damaged or no GGUF file") from error


def _parse(path: Path, data: mmap.mmap) -> GgufFile:
    if data[:4] != b"GGUF":
        raise unreadable(path, "it is no GGUF file")
    cursor = _Cursor(data, 4)
    version = cursor.whole("I")
    if version in (2 << 24, 3 << 24):
        raise ModelError(f"{path} is big-endian; only little-endian GGUF files are read")
    if version not in (2, 3):
        raise ModelError(f"{path} is GGUF version {version}; supported: 2, 3")
    num_tensors, num_values = cursor.whole("Q"), cursor.whole("Q")
    metadata = {cursor.string(): cursor.value(cursor.whole("I")) for _ in range(num_values)}
    found = [(cursor.string(), cursor.tensor()) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"alignment {alignment!r}")
    start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, tensor in found:
        if name in tensors:
            raise ModelError(f"tensor {name} is stored twice in {path}")
        tensors[name] = replace(tensor, offset=tensor.offset + start)
    return GgufFile(path, metadata, tensors)


class _Cursor:
    def __init__(self, data: mmap.mmap, at: int) -> None:
        self._data = data
        self.at = at

    def scalars(self, code: str, count: int) -> list[Value]:
        layout = struct.Struct(f"<{count}{code}")
        values = layout.unpack_from(self._data, self.at)
        self.at += layout.size
        return list(values)

    def whole(self, code: str) -> int:
        value = self.scalars(code, 1)[0]
        if not isinstance(value, int):
            raise ValueError(f"{value!r} is no number")
        return value

    def string(self) -> str:
        (length,) = _LENGTH.unpack_from(self._data, self.at)
        first = self.at + 8
        self.at = first + length
        if self.at > len(self._data):
            raise ValueError("the file ends inside a string")
        return self._data[first : self.at].decode("utf-8", errors="replace")

    def value(self, kind: int) -> Value:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.scalars(_SCALARS[kind], 1)[0]
        kind, count = self.whole("I"), self.whole("Q")
        if kind in _SCALARS:
            return self.scalars(_SCALARS[kind], count)
        return [self.value(kind) for _ in range(count)]

    def tensor(self) -> GgufTensor:
        shape = [self.whole("Q") for _ in range(self.whole("I"))]
        return GgufTensor(tuple(reversed(shape)), self.whole("I"), self.whole("Q"))
