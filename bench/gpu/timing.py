"""How long things take: on the device by its own clock, on the host by the machine's."""

import statistics
import time
from collections.abc import Callable

import torch

from bench.gpu.place import Place


def device_s(work: Callable[[], object], rounds: int, warm: int = 3) -> float:
    """Median seconds of `work` on the device. What the host adds between two launches is in
    it, so give it a graph where launches are short."""
    for _ in range(warm):
        work()
    pairs = [_timed(work) for _ in range(rounds)]
    torch.cuda.synchronize()
    return statistics.median(float(begin.elapsed_time(end)) / 1e3 for begin, end in pairs)


def host_s(place: Place, work: Callable[[], object], rounds: int) -> float:
    """Median seconds until `work` returns, the device idle when it begins."""
    found = []
    for _ in range(rounds):
        place.sync()
        began_s = time.perf_counter()
        work()
        found.append(time.perf_counter() - began_s)
    return statistics.median(found)


def _timed(work: Callable[[], object]) -> tuple[torch.Event, torch.Event]:
    begin, end = (
        torch.Event("cuda", enable_timing=True),
        torch.Event("cuda", enable_timing=True),
    )
    begin.record()
    work()
    end.record()
    return begin, end
