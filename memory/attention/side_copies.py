"""Swapping over PCIe beside compute: pages are copied on a stream of their own.

What has to wait for what, and by what it does:

- a copy out for the writes of its page that compute was given before, and a copy in for the
  reads and writes of its page by the page's former owner: the side stream waits for compute
  as it stands when the copies are asked for;
- a step that writes a page which is still copied out, or reads one which is still copied in:
  `before_compute` makes the compute stream wait for the last call whose copies touch a page
  of the step. Calls later than that, and all if none touches one, go on beside it. What was
  asked for in one call is waited for as a whole: a mark for each copy would cost the host
  more than the copy;
- a copy for the copies before it, because they share one stream: a page's copy out is done
  before another page is copied in over it, and a host page may be given away as soon as the
  copy from it has been asked for, since whatever is copied over it comes later.
"""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from memory.attention.copies import runs


class Mark(Protocol):
    """A point in what a stream was given; passed once all before it is done."""

    def passed(self) -> bool: ...

    def wait(self) -> None:
        """Make the host wait for it."""

    def hold_compute(self) -> None:
        """What compute is given from now on waits for it."""

    def hold_side(self) -> None:
        """What the side stream is given from now on waits for it."""

    def since_s(self, earlier: Self) -> float:
        """Seconds between two marks of the side stream that were passed."""


class Streams(Protocol):
    """The compute stream and one for copies; each does what it is given in order."""

    def mark_compute(self) -> Mark: ...

    def mark_side(self) -> Mark: ...

    def copy(self, parts: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Each source to its target, on the side stream; the host does not wait."""


def streams_for(device: str) -> Streams:
    """Those of a CUDA device; on any other, copies are done when they are asked for."""
    where = torch.device(device)
    return CudaStreams(where) if where.type == "cuda" else PlainStreams()


class SideCopies:
    """Moves pages between `pool` and `host`, both with pages in front; one copy for each
    page or run of pages. On a GPU the host pages must be pinned, or the host waits."""

    def __init__(self, pool: Tensor, host: Tensor, streams: Streams) -> None:
        self._pool = pool
        self._host = host
        self._streams = streams
        self._asked = 0
        # Calls are numbered from 1: for each device page the last one that touches it.
        self._last_of = np.zeros(len(pool), np.int64)
        self._pending = deque[tuple[int, Mark]]()
        self._untimed = deque[tuple[Mark, Mark]]()

    def copy_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Start copying device pages to host pages, behind the compute so far."""
        self._copy(self._pool, self._host, pairs, [page for page, _ in pairs])

    def copy_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Start copying host pages to device pages, behind the compute so far."""
        self._copy(self._host, self._pool, pairs, [page for _, page in pairs])

    def before_compute(self, kv_indices: Tensor) -> None:
        """Hold the compute stream for the copies that touch a page of its next step:
        `kv_indices`, int32 on the host."""
        self._forget_passed()
        if not self._pending or not len(kv_indices):
            return
        needed = int(self._last_of[kv_indices.numpy()].max()) - self._pending[0][0]
        if needed >= 0:
            self._pending[needed][1].hold_compute()

    def fence(self) -> None:
        """Wait on the host until all copies are done."""
        if self._pending:
            self._pending[-1][1].wait()
            self._pending.clear()

    def take_copy_s(self) -> float:
        """Seconds that copies took which were found done since this was last asked. Those
        asked for in one call count once they all are."""
        taken_s = 0.0
        while self._untimed and self._untimed[0][1].passed():
            begun, ended = self._untimed.popleft()
            taken_s += ended.since_s(begun)
        return taken_s

    def _copy(
        self,
        source: Tensor,
        target: Tensor,
        pairs: Sequence[tuple[int, int]],
        device_pages: Sequence[int],
    ) -> None:
        if not pairs:
            return
        self._forget_passed()
        self._streams.mark_compute().hold_side()
        begun = self._streams.mark_side()
        self._streams.copy(
            (source[start : start + pages], target[end : end + pages])
            for start, end, pages in runs(pairs)
        )
        ended = self._streams.mark_side()
        self._asked += 1
        self._last_of[device_pages] = self._asked
        self._pending.append((self._asked, ended))
        self._untimed.append((begun, ended))

    def _forget_passed(self) -> None:
        while self._pending and self._pending[0][1].passed():
            self._pending.popleft()


@dataclass(frozen=True, slots=True)
class CudaMark:
    event: torch.cuda.Event
    side: torch.cuda.Stream

    def passed(self) -> bool:
        return bool(self.event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        self.event.synchronize()

    def hold_compute(self) -> None:
        torch.cuda.current_stream(self.side.device).wait_event(self.event)

    def hold_side(self) -> None:
        self.side.wait_event(self.event)

    def since_s(self, earlier: Self) -> float:
        return float(earlier.event.elapsed_time(self.event)) / 1e3


class CudaStreams:
    """Compute is whichever stream of the device is the current one when asked."""

    def __init__(self, device: torch.device) -> None:
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def mark_compute(self) -> CudaMark:
        return self._mark(torch.cuda.current_stream(self._side.device))

    def mark_side(self) -> CudaMark:
        return self._mark(self._side)

    def copy(self, parts: Iterable[tuple[Tensor, Tensor]]) -> None:
        with torch.cuda.stream(self._side):
            for source, target in parts:
                target.copy_(source, non_blocking=True)

    def _mark(self, stream: torch.cuda.Stream) -> CudaMark:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return CudaMark(event, self._side)


@dataclass(frozen=True, slots=True)
class PlainMark:
    at_s: float = field(default_factory=time.perf_counter)

    def passed(self) -> bool:
        return True

    def wait(self) -> None:
        """Nothing is ever left to do."""

    hold_compute = hold_side = wait

    def since_s(self, earlier: Self) -> float:
        return self.at_s - earlier.at_s


class PlainStreams:
    """Where there are no streams."""

    def mark_compute(self) -> PlainMark:
        return PlainMark()

    def mark_side(self) -> PlainMark:
        return PlainMark()

    def copy(self, parts: Iterable[tuple[Tensor, Tensor]]) -> None:
        for source, target in parts:
            target.copy_(source)
