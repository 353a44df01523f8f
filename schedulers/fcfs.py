"""First come, first served, with chunked prefill."""

from collections.abc import Callable, Iterable
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
            admit_by_age(snap, draft)
        return draft.plan()


def recomputing(view: RequestView) -> Eviction:
    """The victim's pages are computed again."""
    return Eviction(Mode.RECOMPUTE, Cause.PAGES)


def continue_running(
    snap: Snapshot,
    draft: Draft,
    ranked: Iterable[RequestView] | None = None,
    give_way: Callable[[RequestView], Eviction] = recomputing,
) -> None:
    """Grant running requests their tokens: decode rows, then chunks, both in the order of
    `ranked` (all that run, by age when absent). One that finds no page evicts from the end
    of `ranked` on; when it is the last itself it gives way. So the first always moves."""
    alive = list(snap.running.values() if ranked is None else ranked)
    for view in sorted(alive, key=lambda view: snap.pending(view) > 1):
        while view.id not in draft.evicted and draft.budget and not draft.take(view):
            victim = alive.pop()
            draft.evict(victim, give_way(victim))


def admit_by_age(snap: Snapshot, draft: Draft) -> None:
    """Resume the swapped and admit the waiting, oldest first, up to one that finds no room:
    nobody behind it goes ahead."""
    for view in merge(snap.swapped.values(), snap.waiting.values(), key=lambda view: view.id):
        if not draft.admit(view):
            return
