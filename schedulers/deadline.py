"""The most deadlines met: least remaining work first, as far as those that run allow."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, islice
from typing import ClassVar

from schedulers.aged import AgedShare
from schedulers.eviction import DOC, Way
from schedulers.hopeless import MAX_REFUSED, Hopeless
from schedulers.interface import ALWAYS, Plan, Promise, RequestId, RequestView, Snapshot
from schedulers.outlook import Outlook
from schedulers.queue import WaitingQueue
from schedulers.timed import TimedStep, is_timed

ROW_TOKENS = 4.0  # what a decode row counts in the share, in prompt tokens
HURRIED, UNHURRIED = "timed", "patient"


@dataclass(frozen=True, slots=True)
class DeadlineOptions:
    """Options of `deadline`."""

    patient_share: float = field(
        default=0.1,
        metadata={
            "doc": "Part of all service kept for requests without a deadline, the oldest first."
        },
    )
    max_preemptions: int = field(
        default=1,
        metadata={
            "doc": "So often may one without a deadline be preempted for one with; 0: never."
        },
    )
    eviction: Way = field(default="recompute", metadata={"doc": DOC})

    def __post_init__(self) -> None:
        if not 0 < self.patient_share <= 1:
            raise ValueError(
                f"patient_share is {self.patient_share}, not above 0 and at most 1"
            )
        if self.max_preemptions < 0:
            raise ValueError(f"max_preemptions is {self.max_preemptions}, below 0")


class Deadline:
    """Of those that make it, the least remaining work first: with more than can be done, those
    are left out that cost the most, and most deadlines are met.

    - The guard: a step has prefill only as far as those that decode still make it at the pace
      of late (`Guard`), so no admission makes a running request late. That also keeps the batch
      at the size at which a token comes soon enough.
    - Which: by least remaining work of the engine, prefill and learned length, for chunks of
      prompts and for those that wait. One that would be late at that pace is tried behind the
      others, and holds up none then. One that cannot make it with the engine to itself is
      refused at once (`Hopeless`).
    - A running request that cannot make it any more has no more prefill, and is preempted for
      one that can.
    - Requests without a deadline come behind those with one, oldest first, and
      `patient_share` of all service is always theirs (`AgedShare`): where older ones
      still cost S, in prompt tokens, and X a second are served, the wait is at most
      S / (patient_share * X) and that for a row and pages. One is preempted for a deadline at
      risk, `max_preemptions` times at most.

    Costs are corrected by how long steps took, so costs that are wrong alike do no harm.
    """

    Options: ClassVar[type[DeadlineOptions]] = DeadlineOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS | {Promise.NO_STARVATION}

    def __init__(self, options: DeadlineOptions) -> None:
        self.options = options
        self._outlook = Outlook()
        self._queue = WaitingQueue(self._key, _lane)
        self._tried: set[RequestId] = set()
        self._hopeless = Hopeless(self._outlook, _lane)
        self._favoured = AgedShare(options.patient_share)

    def plan(self, snap: Snapshot) -> Plan:
        self._outlook.observe(snap)
        self._queue.sync(snap)
        self._hopeless.sync(snap)
        self._favoured.observe(snap, self._oldest(snap))
        options = self.options
        self._tried &= snap.running.keys()
        preempting = options.eviction, options.max_preemptions
        step = TimedStep(snap, self._outlook, self._favoured, self._tried, preempting)
        draft = step.draft
        self._hopeless.refuse(snap, draft, HURRIED)
        is_crowd = len(draft.refused) + (self._hopeless.spared is not None) >= MAX_REFUSED
        timed = self._hopeless.others(snap, HURRIED) if is_crowd else self._by_work(snap)
        step.fill(timed, self._by_age(snap), self._hopeless)
        if draft.is_empty and (snap.running or self._hopeless.spared or not draft.refused):
            step.fall_back(chain(self._by_work(snap), self._by_age(snap)))
        self._hopeless.refuse_spared(snap, draft)
        for view in self._favoured.charge(snap, draft.tokens, _cost):
            draft.put_on_share(view)
        self._outlook.pace.expect(self._outlook.decode_s + step.guard.spent_s)
        return draft.plan()

    def _by_work(self, snap: Snapshot) -> Iterator[RequestView]:
        return self._queue.candidates(snap, HURRIED)

    def _by_age(self, snap: Snapshot) -> Iterator[RequestView]:
        return self._queue.candidates(snap, UNHURRIED)

    def _oldest(self, snap: Snapshot) -> Iterator[RequestId]:
        """Those without a deadline, by age."""
        running = (view.id for view in snap.running.values() if not is_timed(view))
        waiting = (view.id for view in islice(self._by_age(snap), 1))
        return merge(running, waiting)

    def _key(self, view: RequestView) -> float:
        """Remaining work; of those without a deadline, their age."""
        if not is_timed(view):
            return view.id
        return self._outlook.work_s(view, view.known - view.computed)


def _lane(view: RequestView) -> str:
    return HURRIED if is_timed(view) else UNHURRIED


def _cost(view: RequestView, tokens: int) -> float:
    return tokens if tokens > 1 else ROW_TOKENS
