"""Which attention backend runs here, and why."""

from collections.abc import Sequence
from typing import Literal

from memory.attention.cpu import CpuAttention, unsupported
from memory.attention.interface import AttentionBackend, KVSpec
from memory.attention.reference import ReferenceAttention
from memory.kernels.library import KernelsMissing, level, load
from memory.kernels.ops import WIDTH_MULTIPLE


class BackendUnavailable(Exception):
    """The backend that was asked for cannot run here; the message is one line."""


def choose(
    requested: Literal["auto", "reference", "cpu"], spec: KVSpec, widths: Sequence[int] = ()
) -> tuple[AttentionBackend, str]:
    """The backend and the reason, for logs and `GetModelInfo`. `auto` takes `cpu` where its
    kernels were built and know the model's shape, else `reference`; `widths` are those of
    the rows that the backend's layer kernels get (hidden, intermediate). Raises
    BackendUnavailable where `cpu` was asked for and cannot be had."""
    if requested == "reference":
        return ReferenceAttention(spec), "requested"
    reason = _obstacle(spec, widths)
    if requested == "cpu":
        if reason is not None:
            raise BackendUnavailable(f"attention.backend = cpu: {reason}")
        return CpuAttention(spec), f"requested, {level()} kernels"
    if reason is not None:
        return ReferenceAttention(spec), f"auto: {reason}"
    return CpuAttention(spec), f"auto: the C++ kernels are built, {level()}"


def _obstacle(spec: KVSpec, widths: Sequence[int]) -> str | None:
    try:
        load()
    except KernelsMissing as error:
        return str(error)
    for width in widths:
        if width % WIDTH_MULTIPLE:
            return f"layer width {width} is not a multiple of {WIDTH_MULTIPLE}"
    return unsupported(spec)
