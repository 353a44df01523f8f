"""First come, first served, with chunked prefill."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from typing import ClassVar

from schedulers.draft import Draft
from schedulers.interface import (
    ALWAYS,
    Cause,
    Eviction,
    Mode,
    Plan,
    Promise,
    RequestView,
    Snapshot,
)


@dataclass(frozen=True, slots=True)
class FCFSOptions:
    """FCFS has none."""


class FCFS:
    """Decode rows first, then prefill chunks in what is left of the budget (Sarathi-Serve,
    OSDI 2024), oldest first in both. Under pressure the newest gives way and keeps its
    place in the queue, so whoever is oldest always moves. Remembers nothing."""

    Options: ClassVar[type[FCFSOptions]] = FCFSOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS | {
        Promise.NO_STARVATION,
        Promise.WORK_CONSERVING,
    }

    def __init__(self, options: FCFSOptions) -> None:
        self.options = options

    def plan(self, snap: Snapshot) -> Plan:
        draft = Draft(snap)
        continue_running(snap, draft)
        if not draft.evicted:
            self._admit(snap, draft)
        return draft.plan()

    def _admit(self, snap: Snapshot, draft: Draft) -> None:
        for view in _by_age(snap):
            keep = snap.watermark_pages if snap.running or not draft.is_empty else 0
            if not draft.take(view, keep_pages=keep):
                return


def continue_running(snap: Snapshot, draft: Draft) -> None:
    """Grant running requests their tokens: decode rows, then chunks, oldest first. One that
    finds no page evicts from the newest on; when it is the newest itself it gives way."""
    alive = list(snap.running.values())
    for view in sorted(alive, key=lambda view: snap.pending(view) > 1):
        while view.id not in draft.evicted and draft.budget and not draft.take(view):
            draft.evict(alive.pop(), Eviction(Mode.RECOMPUTE, Cause.PAGES))


def _by_age(snap: Snapshot) -> Iterator[RequestView]:
    """Swapped and waiting requests, oldest first."""
    return merge(snap.swapped.values(), snap.waiting.values(), key=lambda view: view.id)
