"""One order for chunks of those that run and for those who could join."""

from collections import deque
from collections.abc import Callable, Iterable

from schedulers.draft import Draft
from schedulers.interface import RequestView, Snapshot
from schedulers.running import Key, Running


def share(
    snap: Snapshot,
    draft: Draft,
    running: Running,
    candidates: Iterable[RequestView],
    key: Key,
    join: Callable[[RequestView], object],
    first: Callable[[list[RequestView]], list[RequestView]] = lambda chunks: chunks,
) -> None:
    """Grant decode rows, then chunks and candidates by `key`: a long prompt that is being
    computed does not hold up one that comes before it.

    `candidates` come in order of `key`. Up to the first that `join` finds no room for:
    nobody behind it goes ahead, and nobody goes ahead of one who gives way in this step.
    `first` is given the chunks after the decode rows, and returns those that it leaves.
    """
    chunks = deque(sorted(first(running.decode()), key=key))
    for view in candidates:
        place = key(view)
        while chunks and key(chunks[0]) <= place:
            running.move(chunks.popleft())
        if any(key(snap.running[gone]) <= place for gone in draft.evicted) or not join(view):
            break
    for view in chunks:
        running.move(view)
