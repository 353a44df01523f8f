"""A bounded part of all service for the requests that have waited longest."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice

from schedulers.interface import RequestId, RequestView, Snapshot
from schedulers.running import is_held_up

Cost = Callable[[RequestView, int], float]
"""Cost of a number of tokens of a request."""


class AgedShare:
    """Favours the oldest requests, one after the other, while they have had less than `part`
    of all service.

    What a step serves adds `part` of its cost to a credit, and what it serves the favoured is
    taken off. While there is credit, the oldest request that is held up is favoured, until it
    ends. So a request is favoured before `(S + D) / part` was served since it came, where `S`
    is what older requests still cost then, and `D` what the favoured have had beyond `part`: at
    most the rest of an answer of each, also of one that ran alone. The credit is at most a
    step's budget, so times in which no request waits save nothing up. Beyond `part` the
    favoured get what a step has left over, and the rest of the answers that are being decoded.
    """

    def __init__(self, part: float) -> None:
        self._part = part
        self._credit = 0.0
        self._favoured: set[RequestId] = set()

    def observe(self, snap: Snapshot, oldest: Iterable[RequestId] | None = None) -> None:
        """Call once in every `plan`, first. `oldest`: the requests that may be favoured, by
        age, where those are not all."""
        if snap.rebuild:
            self._credit, self._favoured = 0.0, set()
        self._favoured = {r for r in self._favoured if _find(snap, r) is not None}
        if self._credit > 0:
            among = _oldest(snap) if oldest is None else oldest
            held_up = (request for request in among if _is_held_up(snap, request))
            self._favoured.update(islice(held_up, 1))

    def has(self, view: RequestView) -> bool:
        """Whether `view` is favoured, with credit left or not."""
        return view.id in self._favoured

    def is_first(self, view: RequestView) -> bool:
        """Whether `view` comes before all others in this step."""
        return self._credit > 0 and view.id in self._favoured

    def first(self, snap: Snapshot, others: Iterable[RequestView]) -> Iterator[RequestView]:
        """The candidates in order: what comes first in this step, then `others`."""
        outside = sorted(self._favoured - snap.running.keys()) if self._credit > 0 else []
        views = (view for r in outside if (view := _find(snap, r)) is not None)
        return chain(views, (view for view in others if view.id not in outside))

    def charge(
        self, snap: Snapshot, tokens: Mapping[RequestId, int], cost: Cost
    ) -> Iterator[RequestView]:
        """Take a finished step into account. Returns the favoured that compute in it."""
        for request, granted in tokens.items():
            view = _find(snap, request)
            if view is not None:
                spent = cost(view, granted)
                self._credit += self._part * spent
                if request in self._favoured:
                    self._credit -= spent
                    yield view
        self._credit = min(self._credit, snap.budget)


def _find(snap: Snapshot, request: RequestId) -> RequestView | None:
    return snap.running.get(request) or snap.waiting.get(request) or snap.swapped.get(request)


def _oldest(snap: Snapshot) -> list[RequestId]:
    """The oldest of those that wait, of those swapped out, and all that run, by age."""
    heads = (*islice(snap.waiting, 1), *islice(snap.swapped, 1))
    return sorted((*heads, *snap.running))


def _is_held_up(snap: Snapshot, request: RequestId) -> bool:
    """Whether `request` waits, or gets no token in each step anyway."""
    view = snap.running.get(request)
    return view is None or is_held_up(snap, view)
