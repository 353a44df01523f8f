"""By priority, with ageing and preemption on arrival."""

from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar

from schedulers.bulk import BulkDraft
from schedulers.draft import Draft
from schedulers.eviction import DOC, Evictions, Way
from schedulers.interface import ALWAYS, Cause, Eviction, Plan, Promise, RequestView, Snapshot
from schedulers.order import share
from schedulers.preempt import make_room
from schedulers.queue import WaitingQueue
from schedulers.running import Running, last_first

MAX_PASSED = 256  # in one plan
HIGHEST = 15  # priority


@dataclass(frozen=True, slots=True)
class PriorityOptions:
    """Options of `priority`."""

    age_s: float = field(
        default=6.0,
        metadata={
            "doc": "Waiting so long counts as much as one level of priority, seconds. Nobody "
            "is overtaken by who comes more than 15 times this later; keep that under "
            "`server.queue_timeout_s`, after which a call that waits is refused."
        },
    )
    max_preemptions: int = field(
        default=3,
        metadata={"doc": "So often may a request be preempted; then it is immune."},
    )
    eviction: Way = field(default="recompute", metadata={"doc": DOC})
    urgent: int = field(
        default=8,
        metadata={"doc": "Requests of this priority on, 0-15, are urgent; see `bulk_tokens`."},
    )
    bulk_tokens: int = field(
        default=0,
        metadata={
            "doc": "So many tokens of a step may go to prefills that are not urgent, so that "
            "one that is finds the engine in a short step; 0: all."
        },
    )

    def __post_init__(self) -> None:
        if not 0 < self.age_s < float("inf"):
            raise ValueError(f"age_s is {self.age_s}, it must be above 0 and finite")
        if self.max_preemptions < 0:
            raise ValueError(f"max_preemptions is {self.max_preemptions}, below 0")
        if self.bulk_tokens < 0:
            raise ValueError(f"bulk_tokens is {self.bulk_tokens}, below 0")
        if not 0 <= self.urgent <= HIGHEST:
            raise ValueError(f"urgent is {self.urgent}, it must be from 0 to {HIGHEST}")


class Priority:
    """Smallest `arrival_s - priority * age_s` first, for waiting, running and swapped alike.

    The key is fixed at submit, so the order never changes. Bound on the wait of the lowest
    priority: with levels 0 to `range`, a request of level p that arrived at t has the key
    t - p * age_s; one that arrived at u has at best u - range * age_s, which is smaller only
    while u < t + (range - p) * age_s. So whoever arrives later than that goes behind it,
    and what goes ahead is at most what arrived before t + range * age_s.

    One that finds no row or no pages preempts those of a lower level that come after it,
    last first, among equals the one that loses least. Equals never preempt each other, so
    whoever was preempted cannot take its place back. After `max_preemptions` a request is
    immune: it gives way to nobody's arrival, and to page pressure when nobody else can. Pages
    that others hold too count for nothing, so several victims on one prefix give less than
    they hold.

    `bulk_tokens` buys the urgent a shorter wait with some of the others' throughput, and with
    the promise to conserve work. One that finds them spent is passed over, by the urgent that
    come behind it too, at most MAX_PASSED in a step; but whoever is first by the order computes
    in every step.
    """

    Options: ClassVar[type[PriorityOptions]] = PriorityOptions
    promises: frozenset[Promise] = ALWAYS | {Promise.NO_STARVATION, Promise.WORK_CONSERVING}

    def __init__(self, options: PriorityOptions) -> None:
        self.options = options
        if options.bulk_tokens:
            self.promises = self.promises - {Promise.WORK_CONSERVING}
        self._age_s = options.age_s
        self._queue = WaitingQueue(self._key)

    def plan(self, snap: Snapshot) -> Plan:
        self._queue.sync(snap)
        draft, how = self._draft(snap), Evictions(self.options.eviction, snap)
        passed = count()

        def join(view: RequestView) -> bool:
            if draft.budget and not draft.allowance(view):  # who is urgent may come behind
                return next(passed) < MAX_PASSED
            return bool(draft.admit(view) or self._preempt(snap, draft, view, how))

        running = Running(snap, draft, how, self._rank, how.loss_s)
        share(snap, draft, running, self._queue.candidates(snap), self._key, join)
        return draft.plan()

    def _draft(self, snap: Snapshot) -> Draft:
        bulk_tokens = self.options.bulk_tokens
        return BulkDraft(snap, self.options.urgent, bulk_tokens) if bulk_tokens else Draft(snap)

    def _preempt(self, snap: Snapshot, draft: Draft, view: RequestView, how: Evictions) -> bool:
        level, key, most = view.priority, self._key(view), self.options.max_preemptions
        lower = [other for other in snap.running.values() if other.priority < level]
        behind = [
            other
            for other in lower
            if other.preemptions < most
            and self._key(other) > key
            and other.id not in draft.evicted
        ]
        if not behind:  # before the prompt is hashed
            return False

        def give_way(victim: RequestView) -> Eviction:
            return how(victim, Cause.PRIORITY)

        victims = last_first(behind, self._key, how.loss_s)
        return make_room(draft, view, victims, give_way) and draft.admit(view) > 0

    def _key(self, view: RequestView) -> float:
        return view.arrival_s - view.priority * self._age_s

    def _rank(self, view: RequestView) -> tuple[bool, float]:
        """The immune come first: they give way when nobody else can."""
        return view.preemptions < self.options.max_preemptions, self._key(view)
