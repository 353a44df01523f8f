"""Moves pages between the device pool and the host store."""

from collections.abc import Iterator, Sequence

from torch import Tensor


def copy_pages(source: Tensor, target: Tensor, pairs: Sequence[tuple[int, int]]) -> None:
    """Copy pages (source, target) of two pools with pages in front, adjacent ones at once."""
    for start, end, pages in _runs(pairs):
        target[end : end + pages].copy_(source[start : start + pages])


def _runs(pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
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
