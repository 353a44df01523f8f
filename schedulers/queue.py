"""A queue of waiting requests that keeps itself by what a snapshot says has changed."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Set
from heapq import merge
from itertools import chain
from typing import Any

from sortedcontainers import SortedKeyList

from schedulers.interface import RequestId, RequestView, Snapshot

Key = Callable[[RequestView], Any]
Lane = Callable[[RequestView], str]


class WaitingQueue:
    """Waiting requests by `key`, smallest first, equals by id; in lanes of their own where
    `lane` says so (one for each tenant, say), else all in lane "".

    A request's key and lane must not change while it waits. Costs O(changes x log waiting)
    a step; a strategy reads only as much of it as it plans.
    """

    def __init__(self, key: Key, lane: Lane = lambda view: "") -> None:
        self._key = key
        self._lane = lane
        self._keys: dict[RequestId, tuple[Any, RequestId]] = {}
        self._lane_of: dict[RequestId, str] = {}
        self._lanes: dict[str, SortedKeyList] = {}

    def sync(self, snap: Snapshot) -> None:
        """Bring the queue up to date; call once in every `plan`, first."""
        if snap.rebuild:
            self._lanes.clear()
            self._keys.clear()
            self._lane_of.clear()
        came = snap.waiting if snap.rebuild else snap.arrived
        new = {r for r in came if r in snap.waiting and r not in self._keys}
        self._add(snap.waiting[request] for request in new)
        for request in snap.left:
            if request not in snap.waiting and request in self._keys:
                self._remove(request)

    @property
    def lanes(self) -> Set[str]:
        """The lanes in which somebody waits."""
        return self._lanes.keys()

    def candidates(self, snap: Snapshot, lane: str = "") -> Iterator[RequestView]:
        """Who could join from this lane, swapped and waiting alike, in order of key."""

        def order(view: RequestView) -> tuple[Any, RequestId]:
            return self._key(view), view.id

        swapped = [view for view in snap.swapped.values() if self._lane(view) == lane]
        waiting = (snap.waiting[request] for request in self._lanes.get(lane, ()))
        return merge(sorted(swapped, key=order), waiting, key=order)

    def __iter__(self) -> Iterator[RequestId]:
        """Everybody who waits, lane after lane."""
        return chain.from_iterable(self._lanes.values())

    def __len__(self) -> int:
        return len(self._keys)

    def _add(self, views: Iterable[RequestView]) -> None:
        new: defaultdict[str, list[RequestId]] = defaultdict(list)
        for view in views:
            lane = self._lane_of[view.id] = self._lane(view)
            self._keys[view.id] = (self._key(view), view.id)
            new[lane].append(view.id)
        for lane, requests in new.items():
            if lane not in self._lanes:
                self._lanes[lane] = SortedKeyList(key=self._keys.__getitem__)
            self._lanes[lane].update(requests)

    def _remove(self, request: RequestId) -> None:
        lane = self._lane_of.pop(request)
        self._lanes[lane].remove(request)
        del self._keys[request]
        if not self._lanes[lane]:
            del self._lanes[lane]
