"""A queue of waiting requests that keeps itself by what a snapshot says has changed."""

from collections.abc import Callable, Iterator
from typing import Any

from sortedcontainers import SortedKeyList

from schedulers.interface import RequestId, RequestView, Snapshot

Key = Callable[[RequestView], Any]


class WaitingQueue:
    """Waiting requests by `key`, smallest first, equals by id.

    A request's key must not change while it waits. Costs O(changes x log waiting) a step;
    a strategy reads only as much of it as it plans.
    """

    def __init__(self, key: Key) -> None:
        self._key = key
        self._keys: dict[RequestId, tuple[Any, RequestId]] = {}
        self._order: SortedKeyList = SortedKeyList(key=self._keys.__getitem__)

    def sync(self, snap: Snapshot) -> None:
        """Bring the queue up to date; call once in every `plan`, first."""
        if snap.rebuild:
            self._order.clear()
            self._keys.clear()
        for request in snap.waiting if snap.rebuild else snap.arrived:
            if request in snap.waiting and request not in self._keys:
                self._keys[request] = (self._key(snap.waiting[request]), request)
                self._order.add(request)
        for request in snap.left:
            if request not in snap.waiting and request in self._keys:
                self._order.remove(request)
                del self._keys[request]

    def __iter__(self) -> Iterator[RequestId]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)
