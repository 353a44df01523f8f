"""Refuses requests that cannot meet their deadline even with the engine to themselves."""

from collections.abc import Callable, Iterator
from itertools import islice

from schedulers.draft import Draft
from schedulers.interface import Refusal, RequestId, RequestView, Snapshot
from schedulers.outlook import Outlook
from schedulers.queue import WaitingQueue

MAX_REFUSED = 128  # in one plan: ending thousands in one step would hold up those that run


class Hopeless:
    """Waiting requests of one lane, by when they must begin at the latest.

    The estimate assumes an engine without other requests, the least likely answer and the
    cached part of the prompt, so it does not depend on how many run now. An idle engine
    spares one that is hopeless by estimate alone: with nothing computed, costs that were
    wrong would stay so.
    """

    def __init__(self, outlook: Outlook, lane: Callable[[RequestView], str]) -> None:
        self._outlook = outlook
        self._queue = WaitingQueue(self._uncached_latest_s, lane)
        self.spared: RequestView | None = None
        self._saved: set[RequestId] = set()

    def sync(self, snap: Snapshot) -> None:
        """Call once in every `plan`."""
        self._queue.sync(snap)

    def refuse(self, snap: Snapshot, draft: Draft, lane: str) -> None:
        """At most MAX_REFUSED in one plan, those first that should have begun first."""
        self.spared, self._saved = None, set()
        for view in islice(self._overdue(snap, lane), MAX_REFUSED):
            pending = snap.pending(view)
            if self._outlook.latest_s(view, pending) >= snap.now_s:
                self._saved.add(view.id)
            elif self.spared is None and not snap.running and not _is_over(snap, view):
                self.spared = view
            else:
                self._turn_away(draft, view, pending)

    def refuse_spared(self, snap: Snapshot, draft: Draft) -> None:
        """Call when the plan is made: it is tried only when nothing else can be."""
        if self.spared is not None and self.spared.id not in draft.tokens:
            self._turn_away(draft, self.spared, snap.pending(self.spared))

    def others(self, snap: Snapshot, lane: str) -> Iterator[RequestView]:
        """Those that can still begin in time by the prompt alone, the most urgent first: the
        way past a crowd of more than is refused in one plan."""
        return self._queue.candidates(snap, lane, beyond=snap.now_s)

    def has(self, snap: Snapshot, view: RequestView) -> bool:
        """Whether `view` cannot make it, as far as this plan has asked the cache."""
        if self._uncached_latest_s(view) >= snap.now_s or view.id in self._saved:
            return False
        refusable = not view.output_tokens and view.id not in snap.swapped
        return refusable or self._outlook.latest_s(view, 1) < snap.now_s

    def _turn_away(self, draft: Draft, view: RequestView, pending: int) -> None:
        """Refuse `view`, with what it would have needed."""
        draft.refuse(view, Refusal(self._outlook.least_s(view, pending)))

    def _overdue(self, snap: Snapshot, lane: str) -> Iterator[RequestView]:
        """By the prompt alone, without what the cache may have of it."""
        for view in self._queue.candidates(snap, lane):
            if self._uncached_latest_s(view) >= snap.now_s:
                return
            if not view.output_tokens and view.id not in snap.swapped:
                yield view

    def _uncached_latest_s(self, view: RequestView) -> float:
        return self._outlook.latest_s(view, view.known - view.computed)


def _is_over(snap: Snapshot, view: RequestView) -> bool:
    ends = [s for s in (view.deadline_s, view.first_token_deadline_s) if s is not None]
    return min(ends) <= snap.now_s
