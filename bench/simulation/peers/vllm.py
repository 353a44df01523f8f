"""vLLM's two policies, `fcfs` and `priority`, as its V1 scheduler and its documentation of
`--scheduling-policy` describe them.

Running requests get their tokens first. One that finds no page preempts the last of them, by
recomputation, and nothing is admitted in such a step. Then the waiting are admitted from the
head of the queue while there are rows, tokens and pages for the whole prompt, up to the first
that does not fit. A waiting request preempts nothing, at any priority, and the priority
of one that waits never grows.

Left out: limits on partial prefills, LoRA, encoder inputs, speculative tokens. A larger
priority is more urgent here; in vLLM it is a smaller one.
"""

from dataclasses import dataclass
from typing import ClassVar

from schedulers.draft import Draft
from schedulers.interface import ALWAYS, Plan, Promise, RequestView, Snapshot
from schedulers.queue import WaitingQueue
from schedulers.running import Key, by_age, continue_running


@dataclass(frozen=True, slots=True)
class VLLMOptions:
    """vLLM's policies have none."""


class VLLMFCFS:
    """Oldest first; the newest is preempted."""

    Options: ClassVar[type[VLLMOptions]] = VLLMOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS

    def __init__(self, options: VLLMOptions) -> None:
        self.options = options
        self._engine = _Engine(by_age)

    def plan(self, snap: Snapshot) -> Plan:
        return self._engine.plan(snap)


class VLLMPriority:
    """By priority, then by arrival; the least urgent and newest is preempted. When every row is
    taken, an urgent request waits until one of any priority ends."""

    Options: ClassVar[type[VLLMOptions]] = VLLMOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS

    def __init__(self, options: VLLMOptions) -> None:
        self.options = options
        self._engine = _Engine(lambda view: (-view.priority, view.arrival_s, view.id))

    def plan(self, snap: Snapshot) -> Plan:
        return self._engine.plan(snap)


class _Engine:
    """The scheduler that both policies share; `key` puts the first to be served first."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._queue = WaitingQueue(key)

    def plan(self, snap: Snapshot) -> Plan:
        self._queue.sync(snap)
        draft = Draft(snap)
        continue_running(snap, draft, rank=self._key)
        if not draft.evicted:
            for view in self._queue.candidates(snap):
                if not _admit(snap, draft, view):
                    break
        return draft.plan()


def _admit(snap: Snapshot, draft: Draft, view: RequestView) -> bool:
    """With pages for all that is pending, beside the watermark; without either when nothing
    else computes."""
    if draft.rows <= 0 or not draft.budget:
        return False
    if snap.running or not draft.is_empty:
        need = draft.need_pages(view, snap.pending(view))
        if need > draft.pages - snap.watermark_pages:
            return False
    return draft.take(view) > 0
