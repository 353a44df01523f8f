"""From weights on a device to a runner: the memory that graphs and a step take is found by
making them, and the pool gets of the rest."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from memory.attention.interface import AttentionBackend
from models.available_memory import available_bytes
from models.device_faults import first_line
from models.device_runner import DeviceRunner
from models.errors import DeviceLost, ModelError
from models.graphs import Capture, DecodeGraphs
from models.pools import PoolWish, gpu_pages
from models.shard import Model, Seat
from models.trial import StepSize, run_trial

_WITHOUT_ROOM = (torch.OutOfMemoryError, torch.AcceleratorError, torch.cuda.CudaError)


@dataclass(frozen=True, slots=True)
class Machine:
    """What is asked of a device: how many bytes are free, once it is idle, and to capture
    graphs (None: there are to be none)."""

    free_bytes: Callable[[], int]
    capture: Capture | None


@dataclass(frozen=True, slots=True)
class Demands:
    """What the pool is to be, and the largest step and row it has to leave memory for."""

    wish: PoolWish
    most: StepSize
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Running:
    """A runner, and the pages that it has."""

    runner: DeviceRunner
    num_pages: int
    host_pages: int


def start_on_device(
    model: Model, attention: AttentionBackend, demands: Demands, machine: Machine, seat: Seat
) -> Running:
    """A first step, graphs and a trial step over a pool of one page, then the pools, and the
    graphs again: they keep the addresses of the pool that they were captured with. Every rank
    tries by itself, with the same sums in the same order. ModelError with the numbers where
    the pool would be too small, with the settings where graphs cannot be captured, and with
    where to look where no step can be computed."""
    page_size, page_bytes = attention.spec.page_size, attention.spec.page_bytes
    most = demands.most
    leading = seat.seated(model, attention)
    # With several ranks there are none: rank 0 tells the others of steps, not of replays.
    capture = machine.capture if seat.shard.size == 1 else None
    graphs = None if capture is None else DecodeGraphs(model, attention, most.rows)
    attention.alloc_pool(1)
    _first_step(DeviceRunner(model, attention), page_size)
    # Before the trial: a capture gives back what torch has kept of earlier work, and what
    # the trial takes has to count.
    _captured(graphs, capture)
    run_trial(DeviceRunner(model, attention), most, page_size, demands.context_tokens)
    host_bytes = available_bytes() // seat.shard.size
    pages = gpu_pages(demands.wish, page_bytes, machine.free_bytes(), host_bytes)
    num_pages, host_pages = seat.agree(*pages)
    attention.alloc_pool(num_pages)
    if host_pages:
        attention.alloc_host(host_pages)
    _captured(graphs, capture)
    runner = DeviceRunner(*leading, graphs, alone=seat.shard.size == 1)
    return Running(runner, num_pages, host_pages)


def _first_step(runner: DeviceRunner, page_size: int) -> None:
    """Loads what the largest step and the graphs run: who lacks it is told so, and not that
    graphs lack memory."""
    try:
        run_trial(runner, StepSize(1, 1), page_size, context_tokens=1)
    except (RuntimeError, OSError) as error:  # no kernel; no compiler, or one that failed
        raise ModelError(
            "no step can be computed (`walkway doctor` looks for kernels and compilers): "
            f"{_told(error)}"
        ) from error


def _told(error: Exception) -> str:
    """In one line, with what FlashInfer says elsewhere: which module is missing, in `spec`,
    or what failed to compile, behind the words of ninja."""
    module = getattr(getattr(error, "spec", None), "name", None)
    failed = [line for line in str(error).splitlines() if line.startswith("FAILED: ")]
    return ": ".join([*([module] if module else []), first_line(error), *failed[:1]])


def _captured(graphs: DecodeGraphs | None, capture: Capture | None) -> None:
    if graphs is None or capture is None:
        return
    try:
        graphs.capture(capture)
    except torch.AcceleratorError:
        raise
    except RuntimeError as error:  # torch's own, and what libraries raise without memory
        raise ModelError(
            "CUDA graphs cannot be captured (if they lack memory, a smaller "
            "memory.device_fraction leaves them more; engine.cuda_graphs = false does without "
            f"them): {first_line(error)}"
        ) from error


@contextmanager
def room_on_device(most: StepSize) -> Iterator[None]:
    """Says in one line what did not fit while a model starts."""
    try:
        yield
    except (DeviceLost, *_WITHOUT_ROOM) as error:
        raise ModelError(
            f"the weights, a step of {most.tokens} tokens and {most.rows} rows, or the pools "
            f"do not fit the device, or it failed: {first_line(error)}"
        ) from error
