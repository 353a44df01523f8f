"""Least attained service first."""

from dataclasses import dataclass, field
from typing import ClassVar

from schedulers.aged import AgedShare
from schedulers.draft import Draft
from schedulers.eviction import DOC, Evictions, Way
from schedulers.interface import ALWAYS, Cause, Eviction, Plan, Promise, RequestView, Snapshot
from schedulers.order import share
from schedulers.preempt import make_room
from schedulers.queue import WaitingQueue
from schedulers.remaining import Remaining
from schedulers.running import Running

MARGIN = 2.0  # by which a preemption has to pay: an estimate is a mean, and may be wrong


@dataclass(frozen=True, slots=True)
class ShortestOptions:
    """Options of `shortest`."""

    output_weight: float = field(
        default=4.0, metadata={"doc": "Cost of an output token, in prompt tokens."}
    )
    aged_share: float = field(
        default=0.1,
        metadata={"doc": "Part of all service kept for the requests that waited longest."},
    )
    max_preemptions: int = field(
        default=1,
        metadata={"doc": "So often may a request be preempted for a shorter one; 0: never."},
    )
    eviction: Way = field(default="auto", metadata={"doc": DOC})

    def __post_init__(self) -> None:
        if not 0 < self.output_weight < float("inf"):
            raise ValueError(f"output_weight is {self.output_weight}, not above 0 and finite")
        if not 0 < self.aged_share <= 1:
            raise ValueError(f"aged_share is {self.aged_share}, not above 0 and at most 1")
        if self.max_preemptions < 0:
            raise ValueError(f"max_preemptions is {self.max_preemptions}, below 0")


class Shortest:
    """The request that has attained the least service is next, its prompt counted as if it
    were computed: a new request skips the levels that its prompt would pass through (FastServe,
    arXiv 2305.05920). Running decode rows go on; chunks and candidates are in one order, so a
    long prompt holds up no shorter one that comes while it is computed.

    One that finds no row or no pages preempts running ones that have attained more, where that
    pays: where the time that they probably have left, learned from the answers that ended, is
    MARGIN times what the new one takes and what computing or copying them again costs. Where
    lengths are alike that is never so. Each request is preempted `max_preemptions` times at
    most for that. When pages run out the newest is preempted first, however often it was.

    `aged_share` of all service goes to the oldest requests (`AgedShare`), whatever they have
    attained; they are not preempted for others, and give their pages last. Let older requests
    still cost S when a request arrives, in prompt tokens, and let those on the share have had D
    beyond it (the rest of an answer at most). It goes first before (S + D) / aged_share were
    served, so at X prompt tokens a second (an output token counts `output_weight`) it waits at
    most (S + D) / (aged_share * X) seconds, and for the rows and pages that it needs.
    """

    Options: ClassVar[type[ShortestOptions]] = ShortestOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS | {
        Promise.NO_STARVATION,
        Promise.WORK_CONSERVING,
    }

    def __init__(self, options: ShortestOptions) -> None:
        self.options = options
        self._queue = WaitingQueue(self._attained)
        self._aged = AgedShare(options.aged_share)
        self._remaining = Remaining()

    def plan(self, snap: Snapshot) -> Plan:
        self._queue.sync(snap)
        self._aged.observe(snap)
        self._remaining.observe(snap)
        draft, how = Draft(snap), Evictions(self.options.eviction, snap)

        def join(view: RequestView) -> bool:
            return bool(draft.admit(view) or self._preempt(snap, draft, view, how))

        running = Running(snap, draft, how, self._rank, how.loss_s)
        candidates = self._aged.first(snap, self._queue.candidates(snap))
        share(snap, draft, running, candidates, self._place, join)
        for view in self._aged.charge(snap, draft.tokens, self._cost):
            draft.put_on_share(view)
        return draft.plan()

    def _attained(self, view: RequestView) -> float:
        return view.prompt_tokens + self.options.output_weight * view.output_tokens

    def _place(self, view: RequestView) -> tuple[bool, float]:
        return not self._aged.is_first(view), self._attained(view)

    def _rank(self, view: RequestView) -> tuple[bool, int]:
        return not self._aged.has(view), view.id

    def _cost(self, view: RequestView, tokens: int) -> float:
        return tokens if tokens > 1 else self.options.output_weight

    def _preempt(self, snap: Snapshot, draft: Draft, view: RequestView, how: Evictions) -> bool:
        row_s = snap.costs.row_s + snap.costs.step_s / max(1, len(snap.running))
        need_s = row_s * self._remaining.tokens(view)
        need_s += snap.costs.prefill_s(view.known - view.computed)
        if row_s * self._remaining.most <= MARGIN * need_s:
            return False
        gains_s = {}
        for other in snap.running.values():
            gain_s = row_s * self._remaining.tokens(other) - MARGIN * need_s
            if gain_s > 0 and self._may_preempt(draft, view, other):
                gains_s[other.id] = gain_s - MARGIN * how.loss_s(other)
        pays = sorted((r for r in gains_s if gains_s[r] > 0), key=gains_s.__getitem__)
        victims = map(snap.running.__getitem__, reversed(pays))

        def preempt(other: RequestView) -> Eviction:
            return how(other, Cause.ROWS)

        return make_room(draft, view, victims, preempt) and draft.admit(view) > 0

    def _may_preempt(self, draft: Draft, view: RequestView, other: RequestView) -> bool:
        return (
            other.preemptions < self.options.max_preemptions
            and self._attained(other) > self._attained(view)
            and not self._aged.has(other)
            and other.id not in draft.evicted
        )
