"""Which GPUs a compiled library's kernels run on, read from the library itself.

nvcc puts kernels into containers ("fat binaries"), an entry for each GPU that it was told of.
The layout is not documented by NVIDIA; it was compared with what nvcc 13.0 writes for sm_80,
sm_89, sm_90a, sm_100a, sm_120a, sm_120f and compute_90.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MAGIC = 0xBA55ED50
PTX = 1
SPECIFIC, FAMILY = 1 << 20, 1 << 21
"""Flags of sm_90a and of sm_120f."""

_CONTAINER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes that follow
_ENTRY = struct.Struct("<HHIQIIIIQQ")
_START = struct.pack("<IHH", MAGIC, 1, _CONTAINER.size)
_SPELLED = re.compile(r"(\d+)\.(\d)([af]?)(\+PTX)?")

Capability = tuple[int, int]


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """What code was compiled for, as FLASHINFER_CUDA_ARCH_LIST spells it: `9.0a` runs on 9.0
    alone, `12.0f` and `8.0` on later ones of the same major version, `9.0+PTX` on all later
    ones."""

    major: int
    minor: int
    suffix: str = ""
    ptx: bool = False

    def runs_on(self, capability: Capability) -> bool:
        own = (self.major, self.minor)
        if self.suffix == "a":
            return capability == own
        if self.suffix == "f" or not self.ptx:
            return capability[0] == self.major and capability >= own
        return capability >= own

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}{self.suffix}{'+PTX' if self.ptx else ''}"


def run_on(targets: frozenset[Target], capability: Capability) -> bool:
    """Whether one of them does. Without any it is not known, and taken to be so."""
    return not targets or any(target.runs_on(capability) for target in targets)


def spelled(targets: frozenset[Target]) -> str:
    """All of them, for a message."""
    return ", ".join(map(str, sorted(targets)))


def read_targets(text: str) -> frozenset[Target]:
    """Those of an architecture list such as `8.0 9.0a`, as FlashInfer completes it: from 9 on
    what has no letter is for that GPU alone, 12.0 for its family. What is none is left out."""
    found = filter(None, map(_SPELLED.fullmatch, text.split()))
    return frozenset(
        Target(int(one[1]), int(one[2]), one[3] or _completed(int(one[1]), int(one[2])))
        for one in found
    )


def _completed(major: int, minor: int) -> str:
    if major < 9:
        return ""
    return "f" if (major, minor) == (12, 0) else "a"


def library_targets(library: Path) -> frozenset[Target]:
    """All that a library has kernels for. Empty where it has none that can be read."""
    return frozenset(_entries(library.read_bytes()))


def unfit(libraries: Mapping[str, Path], capability: Capability) -> str | None:
    """Why one of them, by name, has no kernel for such a GPU, if so."""
    for name, library in libraries.items():
        targets = library_targets(library)
        if not run_on(targets, capability):
            has = "{}.{}".format(*capability)
            return f"kernels compiled for {spelled(targets)}, and the GPU has {has}: {name}"
    return None


def _entries(data: bytes) -> Iterator[Target]:
    start = data.find(_START)
    while start >= 0:
        end = start + _CONTAINER.size + _CONTAINER.unpack_from(data, start)[3]
        at = start + _CONTAINER.size
        while at + _ENTRY.size <= min(end, len(data)):
            kind, _, header_bytes, payload_bytes, _, _, _, arch, _, flags = _ENTRY.unpack_from(
                data, at
            )
            suffix = "a" if flags & SPECIFIC else "f" if flags & FAMILY else ""
            yield Target(arch // 10, arch % 10, suffix, kind == PTX)
            at += max(header_bytes + payload_bytes, 1)
        start = data.find(_START, start + 1)
