"""SGLang's priority scheduling with preemption, as its documentation of
`--enable-priority-scheduling` and `--priority-scheduling-preemption-threshold` describes it.

Left out: what `sglang_lpm` leaves out of the engine. A larger priority is more urgent, as is
SGLang's own default. Its default threshold of 10 is for priorities without a limit; with 16
levels it would hardly ever be exceeded, so 0 is the default here, which serves the urgent best.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from bench.simulation.peers.sglang import by_output
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
from schedulers.preempt import make_room
from schedulers.queue import WaitingQueue
from schedulers.running import continue_running


@dataclass(frozen=True, slots=True)
class PriorityOptions:
    """Options of `sglang-priority`."""

    threshold: int = field(
        default=0,
        metadata={
            "doc": "A running request is preempted by one more than this many levels above."
        },
    )


class SGLangPriority:
    """By priority, then by arrival. One that finds no row or no pages preempts the least urgent
    and newest of those that run, by recomputation, if its priority exceeds theirs by more than
    `threshold`. Nothing ages, and nothing bounds how often a request is preempted."""

    Options: ClassVar[type[PriorityOptions]] = PriorityOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS

    def __init__(self, options: PriorityOptions) -> None:
        self.options = options
        self._queue = WaitingQueue(lambda view: (-view.priority, view.arrival_s))

    def plan(self, snap: Snapshot) -> Plan:
        self._queue.sync(snap)
        draft = Draft(snap)
        continue_running(snap, draft, rank=by_output)
        if not draft.evicted:
            for view in self._queue.candidates(snap):
                if not (draft.admit(view) or self._preempt(snap, draft, view)):
                    break
        return draft.plan()

    def _preempt(self, snap: Snapshot, draft: Draft, view: RequestView) -> bool:
        most = view.priority - self.options.threshold
        victims = [
            other
            for other in snap.running.values()
            if other.priority < most and other.id not in draft.evicted
        ]
        victims.sort(key=lambda other: (other.priority, -other.arrival_s, -other.id))
        return (
            bool(victims)
            and make_room(draft, view, victims, _recomputing)
            and draft.admit(view) > 0
        )


def _recomputing(victim: RequestView) -> Eviction:
    return Eviction(Mode.RECOMPUTE, Cause.PRIORITY)
