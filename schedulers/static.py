"""Static batching: the baseline that continuous batching is measured against."""

from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from schedulers.draft import Draft
from schedulers.interface import ALWAYS, Plan, Promise, RequestId, Snapshot
from schedulers.running import continue_running


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
        inside = {*snap.running, *snap.swapped}
        if snap.rebuild:
            self._batch.clear()
        self._batch = {r for r in self._batch if r in snap.waiting} | inside
        if not self._batch:
            self._batch = set(islice(snap.waiting, snap.max_rows))
        draft = Draft(snap)
        continue_running(snap, draft)
        if not draft.evicted:
            self._join(snap, draft)
        return draft.plan()

    def _join(self, snap: Snapshot, draft: Draft) -> None:
        for request in sorted(r for r in self._batch if r not in snap.running):
            view = snap.swapped.get(request) or snap.waiting[request]
            if not draft.take(view):
                return
