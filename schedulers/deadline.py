"""Earliest deadline first among those that can still make it."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
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
MAX_PASSED = 256  # in one plan, of those left for the next; whoever comes behind waits as well
MAX_DOUBTED = 256  # in one plan; whoever comes behind is not asked about
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
        self._queue = WaitingQueue(self._due_s)
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
        for its place; the lost come last, first those of them that have most time left."""
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
        yield from reversed(lost)

    def _possible(
        self, snap: Snapshot, draft: Draft, lost: list[RequestView]
    ) -> Iterator[RequestView]:
        """Who is not hopeless, in order of when they are due. Refuses the others; those that
        it must not refuse are put into `lost`."""
        spared: RequestView | None = None
        passed = 0
        for view in self._queue.candidates(snap):
            may_refuse = len(draft.refused) + (spared is not None) < MAX_REFUSED
            if not self._is_hopeless(snap, view, ask_cache=may_refuse):
                yield view
            elif view.output_tokens or view.id in snap.swapped:
                lost.append(view)
            elif spared is None and self._due_s(view) > snap.now_s and not snap.running:
                spared = view
            elif may_refuse:
                _refuse(snap, draft, view)
            elif passed < MAX_PASSED:
                passed += 1
            else:  # swapped ones behind the crowd may be all that could run
                here = self._due_s(view), view.id
                lost += (v for v in snap.swapped.values() if (self._due_s(v), v.id) > here)
                break
        if spared is not None and draft.is_empty:
            lost.append(spared)
        elif spared is not None:
            _refuse(snap, draft, spared)

    def _lag_s(self, snap: Snapshot, view: RequestView) -> float:
        """How much later than it is due a request has its place; the lost have none."""
        rows = len(snap.running) + (view.id not in snap.running)
        if self._is_hopeless(snap, view, rows):
            return inf
        return self.options.patience_s if self._is_doubtful(snap, view) else 0.0

    def _due_s(self, view: RequestView) -> float:
        first_s = None if view.output_tokens else view.first_token_deadline_s
        if first_s is None:
            if view.deadline_s is None:
                return view.arrival_s + self.options.patience_s
            return view.deadline_s
        return first_s if view.deadline_s is None else min(first_s, view.deadline_s)

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
        left_s, token_s = by_s - snap.now_s - snap.costs.step_s, snap.costs.token_s
        uncached = view.known - view.computed
        if ask_cache and token_s <= left_s < uncached * token_s:
            uncached = snap.pending(view)
        return left_s < uncached * token_s

    def _is_doubtful(self, snap: Snapshot, view: RequestView) -> bool:
        """Whether `view` is not likely to be answered in full by its deadline."""
        if view.deadline_s is None or self._pace.step_s is None:
            return False
        length = view.min_tokens or min(self._usual.tokens, view.max_tokens)
        rest = max(0.0, length - view.output_tokens - 1)
        uncached = view.known - view.computed
        need_s = snap.costs.step_s + uncached * snap.costs.token_s + rest * self._pace.step_s
        if view.id not in snap.running:
            need_s *= MARGIN
        return view.deadline_s - snap.now_s < need_s


def _refuse(snap: Snapshot, draft: Draft, view: RequestView) -> None:
    next_s = snap.costs.step_s + snap.pending(view) * snap.costs.token_s
    draft.refuse(view, Refusal(next_s + _rest_s(snap, view)))


def _rest_s(snap: Snapshot, view: RequestView, rows: int = 1) -> float:
    """From the next token to the least whole answer, in steps of so many rows."""
    steps = max(0, view.min_tokens - view.output_tokens - 1)
    return steps * (snap.costs.step_s + rows * snap.costs.row_s)
