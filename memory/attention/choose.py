"""Which attention backend runs here, and why."""

from typing import Literal

from memory.attention.cpu import CpuAttention, unsupported
from memory.attention.interface import AttentionBackend, KVSpec
from memory.attention.reference import ReferenceAttention
from memory.kernels.library import KernelsMissing, level, load


class BackendUnavailable(Exception):
    """The backend that was asked for cannot run here; the message is one line."""


def choose(
    requested: Literal["auto", "reference", "cpu"], spec: KVSpec
) -> tuple[AttentionBackend, str]:
    """The backend and the reason, for logs and `GetModelInfo`. `auto` takes `cpu` where its
    kernels were built and know the model's shape, else `reference`. Raises
    BackendUnavailable where `cpu` was asked for and cannot be had."""
    if requested == "reference":
        return ReferenceAttention(spec), "requested"
    reason = _obstacle(spec)
    if requested == "cpu":
        if reason is not None:
            raise BackendUnavailable(f"attention.backend = cpu: {reason}")
        return CpuAttention(spec), f"requested, {level()} kernels"
    if reason is not None:
        return ReferenceAttention(spec), f"auto: {reason}"
    return CpuAttention(spec), f"auto: the C++ kernels are built, {level()}"


def _obstacle(spec: KVSpec) -> str | None:
    try:
        load()
    except KernelsMissing as error:
        return str(error)
    return unsupported(spec)
