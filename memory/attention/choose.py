"""Which attention backend runs here, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from memory.attention.cpu import CpuAttention, unsupported
from memory.attention.gpu_targets import unfit
from memory.attention.interface import AttentionBackend, KVSpec
from memory.attention.reference import ReferenceAttention
from memory.kernels.library import KernelsMissing, level, load
from memory.kernels.ops import WIDTH_MULTIPLE

Requested = Literal["auto", "reference", "cpu", "flashinfer"]


ROWS_MULTIPLE = 8
"""Of the sizes of FlashInfer's graphs: without a last one above the rows, full steps would
not be replayed."""


class BackendUnavailable(Exception):
    """The backend that was asked for cannot run here; the message is one line."""


@dataclass(frozen=True, slots=True)
class MostRows:
    """What CUDA graphs need memory for: rows of a step, and the pages of each."""

    rows: int = 256
    pages_per_row: int | None = None


def choose(
    requested: Requested,
    spec: KVSpec,
    widths: Sequence[int] = (),
    most: MostRows = MostRows(),
    batch_invariant: bool = False,
) -> tuple[AttentionBackend, str]:
    """The backend and the reason, for logs and `GetModelInfo`. `auto` takes `flashinfer` on
    a GPU and `cpu` elsewhere, where these are installed and know the model's shape, else
    `reference`; `widths` are those of the rows that the backend's layer kernels get (hidden,
    intermediate). `batch_invariant`: a decode row's attention is to have the same bits beside
    whatever others; `cpu` always gives that, `reference` never. Raises BackendUnavailable
    where what was asked for cannot be had."""
    if requested == "reference":
        return _reference(spec, batch_invariant), "requested"
    name = requested
    if requested == "auto":
        name = "cpu" if spec.device == "cpu" else "flashinfer"
    reason = _cpu_obstacle(spec, widths) if name == "cpu" else _flashinfer_obstacle(spec)
    if reason is None:
        backend, kernels = _made(name, spec, most, batch_invariant)
        return backend, f"auto: {kernels}" if requested == "auto" else f"requested: {kernels}"
    if requested == "auto":
        return _reference(spec, batch_invariant), f"auto: {reason}"
    raise BackendUnavailable(f"attention.backend = {name}: {reason}")


def refuse_kernels_of_others(backend: AttentionBackend) -> None:
    """BackendUnavailable where FlashInfer would load a module that was compiled for another
    GPU: it takes what is there, and the first step fails. Not an obstacle that `auto` avoids,
    since a wrong image should not serve slowly."""
    spec = backend.spec
    if backend.name != "flashinfer" or torch.device(spec.device).type != "cuda":
        return
    from memory.attention.flashinfer_kernels import modules

    try:
        found = modules(spec)
    except RuntimeError as error:  # a GPU that this FlashInfer or its CUDA compiles nothing for
        raise BackendUnavailable(f"attention.backend = flashinfer: {error}") from error
    libraries = {module.name: module.library for module in found if module.library}
    capability = torch.cuda.get_device_capability(spec.device) if libraries else (0, 0)
    reason = unfit(libraries, capability)
    if reason is not None:
        raise BackendUnavailable(
            f"attention.backend = flashinfer: {reason} (`walkway doctor` says what to do; "
            "attention.backend = reference does without)"
        )


def _reference(spec: KVSpec, batch_invariant: bool) -> AttentionBackend:
    if batch_invariant:
        raise BackendUnavailable(
            "attention.batch_invariant: the reference backend sums in an order that depends on "
            "the step"
        )
    return ReferenceAttention(spec)


def _made(
    name: str, spec: KVSpec, most: MostRows, batch_invariant: bool
) -> tuple[AttentionBackend, str]:
    if name == "cpu":
        return CpuAttention(spec), f"the C++ kernels are built, {level()}"
    # Imported where it is used: the package takes seconds, and a CPU does without.
    from memory.attention.flashinfer import FlashInferAttention

    rows = -(-most.rows // ROWS_MULTIPLE) * ROWS_MULTIPLE
    backend = FlashInferAttention(
        spec,
        max_rows=rows,
        max_pages_per_row=most.pages_per_row,
        batch_invariant=batch_invariant,
    )
    unsplit = ", no context split" if batch_invariant else ""
    return backend, f"flashinfer is installed, fa2 kernels{unsplit}"


def _cpu_obstacle(spec: KVSpec, widths: Sequence[int]) -> str | None:
    if spec.device != "cpu":
        return unsupported(spec)
    try:
        load()
    except KernelsMissing as error:
        return str(error)
    for width in widths:
        if width % WIDTH_MULTIPLE:
            return f"layer width {width} is not a multiple of {WIDTH_MULTIPLE}"
    return unsupported(spec)


def _flashinfer_obstacle(spec: KVSpec) -> str | None:
    if spec.device == "cpu":
        return "it needs a GPU, and the model is on the CPU"
    try:
        from memory.attention.flashinfer import unsupported as unsupported_by_flashinfer
    except (ImportError, OSError, RuntimeError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        return f"flashinfer cannot be imported: {lines[0]} (see `walkway doctor`)"
    return unsupported_by_flashinfer(spec)
