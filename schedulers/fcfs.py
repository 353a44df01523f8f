"""First come, first served, with chunked prefill."""

from dataclasses import dataclass, field
from heapq import merge
from typing import ClassVar

from schedulers.draft import Draft
from schedulers.eviction import DOC, Evictions, Way
from schedulers.interface import ALWAYS, Plan, Promise, Snapshot
from schedulers.running import by_age, continue_running


@dataclass(frozen=True, slots=True)
class FCFSOptions:
    """Options of `fcfs`."""

    eviction: Way = field(default="recompute", metadata={"doc": DOC})


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
        return plan_by_age(snap, self.options.eviction)


def plan_by_age(snap: Snapshot, eviction: Way) -> Plan:
    """Oldest first throughout. Nobody joins in a step in which somebody gives way."""
    draft = Draft(snap)
    continue_running(snap, draft, Evictions(eviction, snap))
    if not draft.evicted:
        admit_by_age(snap, draft)
    return draft.plan()


def admit_by_age(snap: Snapshot, draft: Draft) -> None:
    """Resume the swapped and admit the waiting, oldest first, up to one that finds no room:
    nobody behind it goes ahead."""
    for view in merge(snap.swapped.values(), snap.waiting.values(), key=by_age):
        if not draft.admit(view):
            return
