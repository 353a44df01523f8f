"""From weights on a device to a runner: the memory that a step takes is found by running one,
and the pool gets of the rest."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from memory.attention.interface import AttentionBackend
from models.available_memory import available_bytes
from models.device_runner import DeviceRunner
from models.errors import DeviceLost, ModelError
from models.graphs import Capture, DecodeGraphs
from models.pools import PoolWish, gpu_pages
from models.shard import Model, Seat
from models.trial import StepSize, run_trial


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
    """Trial step, pools, graphs. Every rank tries by itself, with the same sums in the same
    order. ModelError with the numbers where the pool would be too small."""
    page_size, page_bytes = attention.spec.page_size, attention.spec.page_bytes
    most = demands.most
    leading = seat.seated(model, attention)
    graphs = None if machine.capture is None else DecodeGraphs(*leading, most.rows)
    attention.alloc_pool(1)
    run_trial(DeviceRunner(model, attention), most, page_size, demands.context_tokens)
    host_bytes = available_bytes() // seat.shard.size
    pages = gpu_pages(demands.wish, page_bytes, machine.free_bytes(), host_bytes)
    num_pages, host_pages = seat.agree(*pages)
    attention.alloc_pool(num_pages)
    if host_pages:
        attention.alloc_host(host_pages)
    if graphs is not None and machine.capture is not None:
        graphs.capture(machine.capture)
    return Running(DeviceRunner(*leading, graphs), num_pages, host_pages)


@contextmanager
def room_on_device(most: StepSize) -> Iterator[None]:
    """Says in one line what did not fit while a model starts."""
    try:
        yield
    except (DeviceLost, torch.OutOfMemoryError, torch.AcceleratorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"the weights, a step of {most.tokens} tokens and {most.rows} rows, or the graphs "
            f"and pools do not fit the device, or it failed: {reason}"
        ) from error
