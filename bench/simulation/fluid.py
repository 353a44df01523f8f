"""Schedules of one machine that may split and preempt work at will: they bound real ones.

Work and times are seconds. Preemption costs nothing and everything is known in advance.
"""

from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BINS = 800
ROUNDING = 1e-9


def most_on_time(start_s: Floats, end_s: Floats, work_s: Floats, bins: int = BINS) -> float:
    """How many pieces of work can be done, each between its start and its end, where a part of
    a piece counts as that part.

    A set of amounts can be done if and only if, for every interval, those whose windows lie
    in it need no more than its length. Such sets form a polymatroid, so it is optimal to take
    pieces in order of work, the least first, as much of each as still fits (Edmonds, 1970).
    Windows are widened to `bins` stretches of time, which can only make it more.
    """
    order = np.flatnonzero(np.isfinite(work_s) & (end_s >= start_s))
    if not order.size:
        return 0.0
    origin_s = float(start_s[order].min())
    width_s = max((float(end_s[order].max()) - origin_s) / bins, ROUNDING)
    first = np.floor((start_s - origin_s) / width_s + ROUNDING).clip(0, bins - 1).astype(int)
    last = np.ceil((end_s - origin_s) / width_s - ROUNDING).clip(1, bins).astype(int) - 1
    last = np.maximum(first, last)
    numbers = np.arange(bins)
    room_s = width_s * (numbers[None, :] - numbers[:, None] + 1.0)
    done = 0.0
    for index in order[np.argsort(work_s[order], kind="stable")]:
        around = room_s[: first[index] + 1, last[index] :]
        amount_s = min(float(work_s[index]), max(0.0, float(around.min())))
        around -= amount_s
        done += amount_s / work_s[index] if work_s[index] > 0 else 1.0
    return done


def least_total_s(start_s: Sequence[float], work_s: Sequence[float]) -> float:
    """The least sum of times from start to end, over all pieces: whichever has the least work
    left goes first (Schrage, 1968). Starts ascend."""
    left: list[tuple[float, float]] = []
    now_s = total_s = 0.0
    for at_s, work in zip([*start_s, float("inf")], [*work_s, 0.0], strict=True):
        while left and now_s < at_s:
            remaining_s, began_s = left[0]
            if now_s + remaining_s <= at_s:
                heappop(left)
                now_s += remaining_s
                total_s += now_s - began_s
            else:
                heapreplace(left, (remaining_s - (at_s - now_s), began_s))
                now_s = at_s
        now_s = max(now_s, at_s)
        heappush(left, (work, at_s))
    return total_s
