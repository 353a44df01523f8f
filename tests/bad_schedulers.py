"""Strategies that each break one promise, over a good one: the kit must say which."""

import random
from dataclasses import dataclass, replace
from typing import ClassVar

from schedulers.draft import Draft
from schedulers.fcfs import FCFS, FCFSOptions
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
from schedulers.queue import WaitingQueue
from schedulers.running import continue_running

GIVE_WAY = Eviction(Mode.RECOMPUTE, Cause.PAGES)


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Nothing to choose."""


class Good:
    """FCFS, which keeps what it promises."""

    Options: ClassVar[type[NoOptions]] = NoOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS
    breaks: ClassVar[Promise] = Promise.LEGAL

    def __init__(self, options: NoOptions) -> None:
        self._good = FCFS(FCFSOptions())
        self._plans = 0

    def plan(self, snap: Snapshot) -> Plan:
        self._plans += 1
        return self.answer(snap)

    def answer(self, snap: Snapshot) -> Plan:
        return self._good.plan(snap)


class OverBudget(Good):
    """Gives everybody all they want."""

    def answer(self, snap: Snapshot) -> Plan:
        views = [*snap.running.values(), *snap.waiting.values(), *snap.swapped.values()]
        return Plan({view.id: snap.pending(view) for view in views})


class Raising(Good):
    """Trips over a second request."""

    def answer(self, snap: Snapshot) -> Plan:
        if len(snap.waiting) > 1:
            raise ZeroDivisionError("in a plug-in")
        return super().answer(snap)


class RaisesInACrowd(Good):
    """Keeps its promises until many wait."""

    def answer(self, snap: Snapshot) -> Plan:
        if len(snap.waiting) > 1000:
            raise RuntimeError("too many")
        return super().answer(snap)


class NoPlan(Good):
    """Answers with something else."""

    def answer(self, snap: Snapshot) -> Plan:
        return dict(super().answer(snap).tokens)  # type: ignore[return-value]


class Meddling(Good):
    """Takes what has arrived off the list."""

    def answer(self, snap: Snapshot) -> Plan:
        plan = super().answer(snap)
        snap.arrived.clear()  # type: ignore[attr-defined]
        return plan


class Promoting(Good):
    """Changes a request that it was shown."""

    def answer(self, snap: Snapshot) -> Plan:
        for view in snap.waiting.values():
            object.__setattr__(view, "priority", 15)
        return super().answer(snap)


class Stalling(Good):
    """Takes a rest now and then."""

    breaks = Promise.PROGRESS

    def answer(self, snap: Snapshot) -> Plan:
        return Plan() if self._plans == 3 else super().answer(snap)


class Endless(Good):
    """Throws everything away as soon as a prompt is about to be done."""

    breaks = Promise.PROGRESS

    def answer(self, snap: Snapshot) -> Plan:
        waiting, running = list(snap.waiting.values()), list(snap.running.values())
        if len(waiting) + len(running) < 2 or snap.swapped:
            return super().answer(snap)
        if not waiting:
            first, *others = running
            return Plan({first.id: 1}, {view.id: GIVE_WAY for view in others})
        return Plan({waiting[-1].id: 1}, {view.id: GIVE_WAY for view in running})


class Dicey(Good):
    """Throws dice."""

    breaks = Promise.DETERMINISTIC

    def answer(self, snap: Snapshot) -> Plan:
        plan = super().answer(snap)
        order = sorted(plan.tokens, key=lambda _: random.random())
        return replace(plan, tokens={request: plan.tokens[request] for request in order})


class Unforgetting(Good):
    """Counts its plans and does not stop when told to forget."""

    breaks = Promise.DETERMINISTIC

    def answer(self, snap: Snapshot) -> Plan:
        plan = super().answer(snap)
        order = sorted(plan.tokens, reverse=self._plans % 3 == 0)
        return replace(plan, tokens={request: plan.tokens[request] for request in order})


class Abandoning(Good):
    """Does not know that a request can be swapped."""

    breaks = Promise.RESUMES_SWAPPED

    def answer(self, snap: Snapshot) -> Plan:
        return super().answer(replace(snap, swapped={}))


class NewestFirst(Good):
    """Admits the newest first, for ever."""

    promises = ALWAYS | {Promise.NO_STARVATION}
    breaks = Promise.NO_STARVATION

    def answer(self, snap: Snapshot) -> Plan:
        draft = Draft(snap)
        continue_running(snap, draft)
        if not draft.evicted:
            joining = sorted([*snap.waiting.values(), *snap.swapped.values()], key=_newest)
            for view in joining:
                draft.admit(view)
        return draft.plan()


class OneByOne(Good):
    """One request at a time."""

    promises = ALWAYS | {Promise.WORK_CONSERVING}
    breaks = Promise.WORK_CONSERVING

    def answer(self, snap: Snapshot) -> Plan:
        if snap.running:
            snap = replace(snap, waiting={}, swapped={})
        return super().answer(replace(snap, max_rows=1 + len(snap.running)))


class Thrashing(Good):
    """Lets another have its turn after each token, and throws away what the one before had
    computed."""

    promises = ALWAYS | {Promise.BOUNDED_RECOMPUTE}
    breaks = Promise.BOUNDED_RECOMPUTE

    def answer(self, snap: Snapshot) -> Plan:
        draft = Draft(snap)
        for view in snap.running.values():
            draft.evict(view, GIVE_WAY)
        others = sorted(snap.waiting.values(), key=lambda view: view.preemptions)
        whole = others and draft.take(others[0]) == snap.pending(others[0])
        return draft.plan() if whole else super().answer(snap)


class Ageing(Good):
    """By priority, a level of which is six seconds of waiting: holds until all have waited for
    as long as the levels are worth."""

    breaks = Promise.STEADY

    def __init__(self, options: NoOptions) -> None:
        super().__init__(options)
        self._queue = WaitingQueue(_aged)

    def answer(self, snap: Snapshot) -> Plan:
        self._queue.sync(snap)
        draft = Draft(snap)
        continue_running(snap, draft)
        for view in self._queue.candidates(snap):
            if draft.evicted or not draft.admit(view):
                break
        return draft.plan()


class Saving(Good):
    """The tenant that had least since the start is next, however long it was away."""

    breaks = Promise.STEADY

    def answer(self, snap: Snapshot) -> Plan:
        draft = Draft(snap)
        continue_running(snap, draft)
        for view in sorted(snap.waiting.values(), key=lambda view: _had(snap, view.tenant)):
            if draft.evicted or not draft.admit(view):
                break
        return draft.plan()


class Hoarding(Good):
    """Notes every request that it admits, and never crosses one out."""

    breaks = Promise.STEADY

    def __init__(self, options: NoOptions) -> None:
        super().__init__(options)
        self._admitted: dict[int, float] = {}

    def answer(self, snap: Snapshot) -> Plan:
        plan = super().answer(snap)
        self._admitted |= dict.fromkeys(plan.tokens, snap.now_s)
        return plan


class Rummaging(Good):
    """Sorts the whole queue for each step."""

    breaks = Promise.STEADY

    def answer(self, snap: Snapshot) -> Plan:
        sorted(snap.waiting.values(), key=_aged)
        return super().answer(snap)


def _aged(view: RequestView) -> float:
    return view.arrival_s - 6.0 * view.priority


def _had(snap: Snapshot, tenant: str) -> int:
    served = snap.served.get(tenant)
    return served.output_tokens if served else 0


def _newest(view: object) -> int:
    return -view.id  # type: ignore[attr-defined]


BAD = [
    OverBudget,
    Raising,
    NoPlan,
    Meddling,
    Promoting,
    Stalling,
    Endless,
    Dicey,
    Unforgetting,
    Abandoning,
    NewestFirst,
    OneByOne,
    Thrashing,
    Ageing,
    Saving,
    Hoarding,
    Rummaging,
]
