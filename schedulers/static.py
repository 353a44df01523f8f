"""Static batching: the baseline that continuous batching is measured against."""

from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from schedulers.draft import Draft
from schedulers.fcfs import continue_running
from schedulers.interface import ALWAYS, Plan, Promise, RequestId, Snapshot


@dataclass(frozen=True, slots=True)
class StaticOptions:
    """Static batching has none."""


class Static:
    """A batch of up to `max_rows` is formed, runs until its last member ends, and nobody
    joins meanwhile. A member that had to give its pages back rejoins its own batch."""

    Options: ClassVar[type[StaticOptions]] = StaticOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS

    def __init__(self, options: StaticOptions) -> None:
        self.options = options
        self._batch: set[RequestId] = set()

    def plan(self, snap: Snapshot) -> Plan:
        self._batch &= snap.running.keys() | snap.swapped.keys() | self._still_waiting(snap)
        self._batch |= snap.running.keys() | snap.swapped.keys()
        if not self._batch:
            self._batch = set(islice(snap.waiting, snap.max_rows))
        draft = Draft(snap)
        continue_running(snap, draft)
        if not draft.evicted:
            self._join(snap, draft)
        return draft.plan()

    def _still_waiting(self, snap: Snapshot) -> set[RequestId]:
        return {request for request in self._batch if request in snap.waiting}

    def _join(self, snap: Snapshot, draft: Draft) -> None:
        for request in sorted(self._batch - snap.running.keys()):
            view = snap.swapped.get(request) or snap.waiting[request]
            if not draft.take(view):
                return
