"""Made-up libraries with kernels for GPUs."""

import struct

from memory.attention.gpu_targets import MAGIC

KERNEL = 2
PAYLOAD = b"\x7fELF" + bytes(60)


def compiled(*entries: tuple[int, int, int]) -> bytes:
    """A library with one container of (kind, architecture, flags), as nvcc 13.0 writes it."""
    inside = b"".join(
        struct.pack(
            "<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(PAYLOAD), 0, 0, 8, 1, arch, 0, 0, f, 0, 0
        )
        + PAYLOAD
        for kind, arch, f in entries
    )
    return bytes(100) + struct.pack("<IHHQ", MAGIC, 1, 16, len(inside)) + inside + bytes(9)
