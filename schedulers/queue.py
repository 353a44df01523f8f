"""A queue of waiting requests that keeps itself by what a snapshot says has changed."""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Set
from heapq import merge
from operator import itemgetter
from typing import Any

from schedulers.interface import RequestId, RequestView, Snapshot

Key = Callable[[RequestView], Any]
Lane = Callable[[RequestView], str]
Place = tuple[Any, RequestId]

FEW = 16  # insertions one by one up to here; one sort of a nearly sorted list beyond


class WaitingQueue:
    """Waiting requests by `key`, smallest first, equals by id; in lanes of their own where
    `lane` says so (one for each tenant, say), else all in lane "".

    A request's key and lane must not change while it waits. Costs O(changes x log waiting)
    a step and one sort on a rebuild; a strategy reads only as much of it as it plans.
    """

    def __init__(self, key: Key, lane: Lane = lambda view: "") -> None:
        self._key = key
        self._lane = lane
        self._found: dict[RequestId, tuple[str, Place]] = {}
        self._lanes: dict[str, list[Place]] = {}

    def sync(self, snap: Snapshot) -> set[str]:
        """Bring the queue up to date; call once in every `plan`, first. Returns the lanes
        that somebody entered or left, on a rebuild all of them."""
        if snap.rebuild:
            self._lanes.clear()
            self._found.clear()
        came = snap.waiting if snap.rebuild else dict.fromkeys(snap.arrived)
        changed = self._add(
            snap.waiting[request]
            for request in came
            if request in snap.waiting and request not in self._found
        )
        for request in snap.left:
            if request not in snap.waiting and request in self._found:
                changed.add(self._remove(request))
        return changed

    @property
    def lanes(self) -> Set[str]:
        """The lanes in which somebody waits."""
        return self._lanes.keys()

    def candidates(
        self, snap: Snapshot, lane: str = "", beyond: Any = None
    ) -> Iterator[RequestView]:
        """Who could join from this lane, swapped and waiting alike, in order of key; only
        those whose key is over `beyond`, when given."""
        swapped = sorted(
            (self._key(view), view.id)
            for view in snap.swapped.values()
            if self._lane(view) == lane
        )
        waiting = self._lanes.get(lane, [])
        if beyond is not None:
            swapped = swapped[bisect_right(swapped, beyond, key=itemgetter(0)) :]
            waiting = waiting[bisect_right(waiting, beyond, key=itemgetter(0)) :]
        for _, request in merge(swapped, waiting):
            yield snap.swapped.get(request) or snap.waiting[request]

    def _add(self, views: Iterable[RequestView]) -> set[str]:
        new: defaultdict[str, list[Place]] = defaultdict(list)
        for view in views:
            lane, place = self._lane(view), (self._key(view), view.id)
            self._found[view.id] = lane, place
            new[lane].append(place)
        for lane, places in new.items():
            there = self._lanes.setdefault(lane, [])
            if len(places) <= FEW:
                for place in places:
                    insort(there, place)
            else:
                there += places
                there.sort()
        return set(new)

    def _remove(self, request: RequestId) -> str:
        lane, place = self._found.pop(request)
        places = self._lanes[lane]
        del places[bisect_left(places, place)]
        if not places:
            del self._lanes[lane]
        return lane
