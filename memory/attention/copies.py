"""Moves pages between the device pool and the host store."""

import time
from collections.abc import Iterator, Sequence

from torch import Tensor


class BlockingCopies:
    """Copies between `pool` and `host`, pages in front, that are done when a call returns."""

    def __init__(self, pool: Tensor, host: Tensor) -> None:
        self._pool = pool
        self._host = host
        self._spent_s = 0.0

    def copy_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._copy(self._pool, self._host, pairs)

    def copy_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._copy(self._host, self._pool, pairs)

    def take_copy_s(self) -> float:
        """Seconds that copies took since this was last asked."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    def _copy(self, source: Tensor, target: Tensor, pairs: Sequence[tuple[int, int]]) -> None:
        started_s = time.perf_counter()
        copy_pages(source, target, pairs)
        self._spent_s += time.perf_counter() - started_s


def copy_pages(source: Tensor, target: Tensor, pairs: Sequence[tuple[int, int]]) -> None:
    """Copy pages (source, target) of two pools with pages in front, adjacent ones at once."""
    for start, end, pages in runs(pairs):
        target[end : end + pages].copy_(source[start : start + pages])


def runs(pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """(source, target, pages) of runs in which both sides step by one."""
    run: tuple[int, int, int] | None = None
    for source, target in pairs:
        if run is not None and (source, target) == (run[0] + run[2], run[1] + run[2]):
            run = (run[0], run[1], run[2] + 1)
            continue
        if run is not None:
            yield run
        run = (source, target, 1)
    if run is not None:
        yield run
