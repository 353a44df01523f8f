"""Earliest deadline first among those that can still make it."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge
from math import inf
from typing import ClassVar

from schedulers.draft import Draft
from schedulers.eviction import DOC, Evictions, Way
from schedulers.interface import ALWAYS, Plan, Promise, Refusal, RequestView, Snapshot
from schedulers.order import share
from schedulers.pace import AnswerLength, Pace
from schedulers.queue import WaitingQueue
from schedulers.running import Running

MAX_REFUSED = 128  # in one plan: ending thousands in one step would hold up those that run
MAX_DOUBTED = 256  # in one plan; whoever comes behind is not asked about
HURRIED, PATIENT = "hurried", "patient"  # with a deadline and without
MARGIN = 1.15  # of what who joins probably needs: whoever joins later slows it down


@dataclass(frozen=True, slots=True)
class DeadlineOptions:
    """Options of `deadline`."""

    patience_s: float = field(
        default=60.0,
        metadata={"doc": "A request without a deadline is due so long after arrival, seconds."},
    )
    eviction: Way = field(default="recompute", metadata={"doc": DOC})

    def __post_init__(self) -> None:
        if not 0 < self.patience_s < inf:
            raise ValueError(f"patience_s is {self.patience_s}, it must be above 0 and finite")


class Deadline:
    """Whoever is due first, of those that can make it. There are two estimates.

    The least: computing what the cache does not have of the prompt, which gives the first
    token, then a step for it alone for each token up to `min_tokens`, since those that run now
    may end or give way. It assumes no queueing, and nothing of `max_tokens`. Whoever cannot
    make it by that is hopeless and refused before it costs anything, at most MAX_REFUSED in
    one step and the earliest first. An idle engine tries one that is hopeless by estimate
    alone: with nothing computed an estimate that was wrong would stay so.

    The likely: a token takes as long as it took those that ran lately, with the prefills of
    others, and an answer has `min_tokens` or, without, as many of them as those that had a
    deadline, at most `max_tokens`. Whoever is not likely to make it has its place `patience_s`
    after it is due, behind those that are: under overload it would only slow them down to miss
    theirs as well.

    Behind everybody come the lost, and they give way first, however long they are overdue,
    until there is room for all or their call ends: the hopeless that cannot be refused because
    they have output or are swapped, and those that would be hopeless if all who run now went
    on beside them.

    A request without a deadline is never refused; it is due `patience_s` after it arrived, so
    whoever arrives later than that goes behind it.
    """

    Options: ClassVar[type[DeadlineOptions]] = DeadlineOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS | {
        Promise.NO_STARVATION,
        Promise.WORK_CONSERVING,
    }

    def __init__(self, options: DeadlineOptions) -> None:
        self.options = options
        self._queue = WaitingQueue(self._due_s, _lane)
        self._pace, self._usual = Pace(), AnswerLength()

    def plan(self, snap: Snapshot) -> Plan:
        self._queue.sync(snap)
        self._pace.observe(snap)
        self._usual.observe(snap)
        draft, how = Draft(snap), Evictions(self.options.eviction, snap)

        def rank(view: RequestView) -> float:
            return self._due_s(view) + self._lag_s(snap, view)

        candidates = self._candidates(snap, draft)
        share(snap, draft, Running(snap, draft, how, rank), candidates, rank, draft.admit)
        return draft.plan()

    def _candidates(self, snap: Snapshot, draft: Draft) -> Iterator[RequestView]:
        """In order of rank. Who is late by its rank comes out of the queue too early and waits
        for its place; the lost come last, those first that are due last."""
        late: deque[RequestView] = deque()
        lost: list[RequestView] = []
        for view in self._possible(snap, draft, lost):
            due_s = self._due_s(view)
            while late and self._due_s(late[0]) + self.options.patience_s <= due_s:
                yield late.popleft()
            # Without a row nobody joins, whoever comes first.
            asked = draft.rows > 0 and len(late) + len(lost) < MAX_DOUBTED
            lag_s = self._lag_s(snap, view) if asked else 0.0
            if lag_s == inf:
                lost.append(view)
            elif lag_s:
                late.append(view)
            else:
                yield view
        yield from late
        yield from sorted(lost, key=self._due_s, reverse=True)

    def _possible(
        self, snap: Snapshot, draft: Draft, lost: list[RequestView]
    ) -> Iterator[RequestView]:
        """Who is not hopeless, in order of when they are due. Refuses the others; those that
        it must not refuse are put into `lost`."""
        spared: RequestView | None = None
        for view in self._in_order(snap, draft):
            may_refuse = len(draft.refused) + (spared is not None) < MAX_REFUSED
            if not self._is_hopeless(snap, view, ask_cache=may_refuse):
                yield view
            elif view.output_tokens or view.id in snap.swapped:
                lost.append(view)
            elif spared is None and self._due_s(view) > snap.now_s and not snap.running:
                spared = view
            elif may_refuse:
                _refuse(snap, draft, view)
        if spared is not None and draft.is_empty:
            lost.append(spared)
        elif spared is not None:
            _refuse(snap, draft, spared)

    def _in_order(self, snap: Snapshot, draft: Draft) -> Iterator[RequestView]:
        patient = self._queue.candidates(snap, PATIENT)
        return merge(self._hurried(snap, draft), patient, key=self._place)

    def _place(self, view: RequestView) -> tuple[float, float]:
        return self._due_s(view), view.id

    def _hurried(self, snap: Snapshot, draft: Draft) -> Iterator[RequestView]:
        """Those with a deadline, as they are due. Once a plan refuses no more it looks at none
        that is overdue, however many there are, but the swapped: they may be all that can
        run."""
        for view in self._queue.candidates(snap, HURRIED):
            here = self._place(view)
            if here <= (snap.now_s, inf) and len(draft.refused) >= MAX_REFUSED:
                break
            yield view
        else:
            return
        for view in sorted(snap.swapped.values(), key=self._place):
            if _lane(view) == HURRIED and here <= self._place(view) <= (snap.now_s, inf):
                yield view
        yield from self._queue.candidates(snap, HURRIED, beyond=snap.now_s)

    def _lag_s(self, snap: Snapshot, view: RequestView) -> float:
        """How much later than it is due a request has its place; the lost have none."""
        rows = len(snap.running) + (view.id not in snap.running)
        if self._is_hopeless(snap, view, rows):
            return inf
        return self.options.patience_s if self._is_doubtful(snap, view) else 0.0

    def _due_s(self, view: RequestView) -> float:
        by_s = _deadline_s(view)
        return view.arrival_s + self.options.patience_s if by_s is None else by_s

    def _is_hopeless(
        self, snap: Snapshot, view: RequestView, rows: int = 1, ask_cache: bool = True
    ) -> bool:
        """Whether `view` cannot get its next token by when it must, if each step after that is
        one of `rows` rows. Asking the cache hashes the prompt; without, what it may have is
        not counted."""
        first_s = None if view.output_tokens else view.first_token_deadline_s
        if first_s is None and view.deadline_s is None:
            return False
        by_s = inf if first_s is None else first_s
        if view.deadline_s is not None:
            by_s = min(by_s, view.deadline_s - _rest_s(snap, view, rows))
        left_s = by_s - snap.now_s - snap.costs.step_s
        if left_s >= _prefill_s(snap, view, view.known - view.computed):
            return False
        if not ask_cache or left_s < _prefill_s(snap, view, 1):
            return True
        return left_s < _prefill_s(snap, view, snap.pending(view))

    def _is_doubtful(self, snap: Snapshot, view: RequestView) -> bool:
        """Whether `view` is not likely to be answered in full by its deadline."""
        if view.deadline_s is None or self._pace.step_s is None:
            return False
        length = view.min_tokens or min(self._usual.tokens, view.max_tokens)
        rest = max(0.0, length - view.output_tokens - 1)
        uncached = view.known - view.computed
        need_s = snap.costs.step_s + _prefill_s(snap, view, uncached)
        need_s += rest * self._pace.step_s
        if view.id not in snap.running:
            need_s *= MARGIN
        return view.deadline_s - snap.now_s < need_s


def _deadline_s(view: RequestView) -> float | None:
    """The next one that `view` has."""
    first_s = None if view.output_tokens else view.first_token_deadline_s
    if first_s is None or view.deadline_s is None:
        return view.deadline_s if first_s is None else first_s
    return min(first_s, view.deadline_s)


def _lane(view: RequestView) -> str:
    return PATIENT if _deadline_s(view) is None else HURRIED


def _refuse(snap: Snapshot, draft: Draft, view: RequestView) -> None:
    next_s = snap.costs.step_s + _prefill_s(snap, view, snap.pending(view))
    draft.refuse(view, Refusal(next_s + _rest_s(snap, view)))


def _prefill_s(snap: Snapshot, view: RequestView, pending: int) -> float:
    """Of the last `pending` tokens that are known of it."""
    return snap.costs.prefill_s(pending, view.known - pending)


def _rest_s(snap: Snapshot, view: RequestView, rows: int = 1) -> float:
    """From the next token to the least whole answer, in steps of so many rows."""
    steps = max(0, view.min_tokens - view.output_tokens - 1)
    return steps * (snap.costs.step_s + rows * snap.costs.row_s)
