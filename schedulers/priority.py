"""By priority, strictly, with preemption on arrival and a share for those that wait longest."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, islice
from typing import ClassVar

from schedulers.bulk import BulkDraft
from schedulers.draft import Draft
from schedulers.eviction import DOC, Evictions, Way
from schedulers.interface import (
    ALWAYS,
    Cause,
    Eviction,
    Plan,
    Promise,
    RequestId,
    RequestView,
    Snapshot,
)
from schedulers.order import share
from schedulers.preempt import make_room
from schedulers.queue import WaitingQueue
from schedulers.running import Running, by_age, last_first
from schedulers.share import Share

CALM_PLANS = 1000
HIGHEST = 15  # priority
MOST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class PriorityOptions:
    """Options of `priority`."""

    aged_share: float = field(
        default=0.1,
        metadata={
            "doc": "Part of the rows, pages and tokens that those which have waited longest "
            "get at any priority, 0-0.5; 0: none, and the lowest may starve."
        },
    )
    preempt_levels: int = field(
        default=1,
        metadata={
            "doc": "A request preempts those at least this many levels below. Larger: less "
            "is computed again where several levels want more than the service can do."
        },
    )
    max_preemptions: int = field(
        default=3,
        metadata={"doc": "So often may a request be preempted; then it is immune."},
    )
    eviction: Way = field(default="recompute", metadata={"doc": DOC})
    urgent: int = field(
        default=8,
        metadata={"doc": "Requests of this priority on, 0-15, are urgent; see `bulk_share`."},
    )
    bulk_share: float = field(
        default=0.5,
        metadata={
            "doc": "Part of a step's tokens that prefills which are not urgent may take while "
            "urgent requests come, so that those wait for short steps, 0-1; 1: all. Smaller: "
            "a shorter wait of the urgent, and less throughput."
        },
    )

    def __post_init__(self) -> None:
        if not 0 <= self.aged_share <= MOST_SHARE:
            raise ValueError(
                f"aged_share is {self.aged_share}, it must be from 0 to {MOST_SHARE}"
            )
        if self.preempt_levels < 1:
            raise ValueError(f"preempt_levels is {self.preempt_levels}, below 1")
        if self.max_preemptions < 0:
            raise ValueError(f"max_preemptions is {self.max_preemptions}, below 0")
        if not 0 < self.bulk_share <= 1:
            raise ValueError(f"bulk_share is {self.bulk_share}, not above 0 and at most 1")
        if not 0 <= self.urgent <= HIGHEST:
            raise ValueError(f"urgent is {self.urgent}, it must be from 0 to {HIGHEST}")


class Priority:
    """Higher levels first, within a level the older, for waiting, running and swapped alike.

    One that finds no row or no pages preempts those `preempt_levels` below it: the lowest
    level first, within a level the one that loses least. Equals never preempt each other. After
    `max_preemptions` a request is immune: no arrival preempts it, and page pressure only when
    it must. Pages that others hold too count for nothing, so several victims on one prefix
    give less than they hold.

    `aged_share` is for requests below the highest level that waits, the oldest first, and not
    preempted (`Share`). With R rows and a share s:

    - Let a row and pages come free within G plans, and let the older requests below that
      level still need W when one comes: each its rows, times the plans that it runs and G. It
      joins within (W + 1) / (s R) + G plans. Its prompt then gets s of each step's tokens,
      or `bulk_share` where that is less.
    - Others lose to it at most s of rows, pages and tokens, on average over any time, and
      one request more. At any moment the share has less than s R rows and one request.

    While requests of level `urgent` come, and CALM_PLANS after, prefills below it get at most
    `bulk_share` of a step's tokens, and none after one of theirs: one that arrives waits for
    the step in flight, then for its own. That leaves tokens of steps unused.
    """

    Options: ClassVar[type[PriorityOptions]] = PriorityOptions
    promises: frozenset[Promise] = ALWAYS | {Promise.NO_STARVATION}

    def __init__(self, options: PriorityOptions) -> None:
        self.options = options
        if options.bulk_share == 1:
            self.promises = self.promises | {Promise.WORK_CONSERVING}
        if not options.aged_share:
            self.promises = self.promises - {Promise.NO_STARVATION}
        self._share = Share(options.aged_share)
        self._calm_plans = CALM_PLANS  # since an urgent request was there
        self._queue = WaitingQueue(by_age, lane=_lane)

    def plan(self, snap: Snapshot) -> Plan:
        self._queue.sync(snap)
        self._share.observe(snap)
        draft, how = self._draft(snap), Evictions(self.options.eviction, snap)
        running = Running(snap, draft, how, self._rank, how.loss_s)

        def join(view: RequestView) -> bool:
            joined = view in self._share or draft.admit(view)
            return bool(joined or self._preempt(snap, draft, view, how))

        def serve_share(chunks: list[RequestView]) -> list[RequestView]:
            top = self._highest(snap)
            run = (view for view in snap.running.values() if view.priority < top)
            wait, head = self._below(snap, top), next(self._candidates(snap), None)
            return self._share.serve(snap, draft, running, chunks, run, wait, head)

        share(snap, draft, running, self._candidates(snap), _key, join, serve_share)
        self._share.finish(snap, draft, running)
        return draft.plan()

    def _draft(self, snap: Snapshot) -> Draft:
        urgent, part = self.options.urgent, self.options.bulk_share
        views = chain(snap.running.values(), islice(self._candidates(snap), 1))
        if any(view.priority >= urgent for view in views):
            self._calm_plans = 0
        elif snap.rebuild:
            self._calm_plans = CALM_PLANS
        else:
            self._calm_plans += 1
        if part == 1 or self._calm_plans >= CALM_PLANS:
            return Draft(snap)
        return BulkDraft(snap, urgent, max(1, int(part * snap.budget)))

    def _levels(self, snap: Snapshot) -> list[str]:
        """Of those that wait or are swapped, the highest first."""
        return sorted(self._queue.lanes | set(map(_lane, snap.swapped.values())), reverse=True)

    def _candidates(self, snap: Snapshot) -> Iterator[RequestView]:
        for lane in self._levels(snap):
            yield from self._queue.candidates(snap, lane)

    def _highest(self, snap: Snapshot) -> int:
        return int(max(self._levels(snap), default=0))

    def _below(self, snap: Snapshot, level: int) -> Iterator[RequestView]:
        """Those that wait or are swapped, the oldest first."""
        lanes = (lane for lane in self._levels(snap) if int(lane) < level)
        return merge(*(self._queue.candidates(snap, lane) for lane in lanes), key=by_age)

    def _preempt(self, snap: Snapshot, draft: Draft, view: RequestView, how: Evictions) -> bool:
        lower = view.priority - self.options.preempt_levels
        most = self.options.max_preemptions
        behind = [
            other
            for other in snap.running.values()
            if other.priority <= lower
            and other.preemptions < most
            and other not in self._share
            and other.id not in draft.evicted
        ]
        if not behind:  # before the prompt is hashed
            return False

        def give_way(victim: RequestView) -> Eviction:
            return how(victim, Cause.PRIORITY)

        victims = last_first(behind, lambda other: -other.priority, how.loss_s)
        return make_room(draft, view, victims, give_way) and draft.admit(view) > 0

    def _rank(self, view: RequestView) -> tuple[int, int, int]:
        """Members of the share come first, the oldest of them before all; then the immune."""
        if view in self._share:
            return 0, 0, view.id
        return 1 + (view.preemptions < self.options.max_preemptions), *_key(view)


def _key(view: RequestView) -> tuple[int, RequestId]:
    return -view.priority, view.id


def _lane(view: RequestView) -> str:
    """Sorts as the level does."""
    return f"{view.priority:02}"
