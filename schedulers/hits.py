"""Waiting requests by what the prefix cache has of their prompts."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Set

from schedulers.counters import SPARE
from schedulers.interface import RequestId, RequestView, Snapshot

LOOKS = 32  # requests that a plan asks the cache about, and
PAGES = 4096  # pages of their prompts together: a look costs as much as the prompt is long

Place = tuple[int, RequestId]


class HitQueue:
    """Waiting requests of each tenant, longest cached prefix first, as it was when the cache
    was last asked; equals by age.

    What the cache has changes with every step, and asking costs. So a plan asks about few, in
    turn, new ones first: with n waiting each is asked about every n / LOOKS plans.
    """

    def __init__(self) -> None:
        self._found: dict[RequestId, tuple[str, int]] = {}
        self._by_hits: dict[str, list[Place]] = {}
        self._by_age: dict[str, list[RequestId]] = {}
        self._turns: deque[RequestId] = deque()
        self._in_turn: set[RequestId] = set()

    def sync(self, snap: Snapshot) -> None:
        """Bring the queue up to date; call once in every `plan`, first."""
        if snap.rebuild:
            for kept in (self._found, self._by_hits, self._by_age, self._turns, self._in_turn):
                kept.clear()
        came = snap.waiting if snap.rebuild else dict.fromkeys(snap.arrived)
        self._add(snap.waiting[r] for r in came if r in snap.waiting and r not in self._found)
        for request in snap.left:
            if request not in snap.waiting and request in self._found:
                self._remove(request)
        self._look(snap)

    @property
    def tenants(self) -> Set[str]:
        """Tenants of which a request waits."""
        return self._by_age.keys()

    def best(self, tenant: str, but: Set[RequestId]) -> Place | None:
        """Minus the longest cached prefix and the request that has it, `but` some."""
        return next((place for place in self._by_hits[tenant] if place[1] not in but), None)

    def oldest(self, tenant: str, but: Set[RequestId]) -> RequestId | None:
        """The request that came first, `but` some."""
        return next((request for request in self._by_age[tenant] if request not in but), None)

    def ask(self, snap: Snapshot, request: RequestId) -> bool:
        """Ask the cache about `request`; whether that changed its place."""
        tenant, hits = self._found[request]
        now = snap.memory.cached_tokens(request)
        if now == hits:
            return False
        places = self._by_hits[tenant]
        del places[bisect_left(places, (-hits, request))]
        insort(places, (-now, request))
        self._found[request] = tenant, now
        return True

    def _look(self, snap: Snapshot) -> None:
        pages, looks = PAGES, min(LOOKS, len(self._turns))
        while looks > 0 and pages > 0:
            request = self._turns.popleft()
            looks -= 1
            if request in self._found:
                self._turns.append(request)
                pages -= snap.waiting[request].known // snap.page_size
                self.ask(snap, request)
            else:
                self._in_turn.remove(request)

    def _add(self, views: Iterable[RequestView]) -> None:
        """Behind all others until the cache is asked."""
        new: dict[str, list[RequestId]] = {}
        for view in views:
            new.setdefault(view.tenant, []).append(view.id)
            self._found[view.id] = view.tenant, 0
        fresh = [r for ids in new.values() for r in ids if r not in self._in_turn]
        self._in_turn.update(fresh)
        self._turns.extendleft(sorted(fresh, reverse=True))
        if len(self._turns) > 2 * (len(self._found) + SPARE):  # of requests that are gone
            self._turns = deque(request for request in self._turns if request in self._found)
            self._in_turn = set(self._turns)
        for tenant, requests in new.items():
            ages = self._by_age.setdefault(tenant, [])
            ages += requests
            ages.sort()  # nearly sorted: those that come are the newest
            places = self._by_hits.setdefault(tenant, [])
            places += [(0, request) for request in requests]
            places.sort()

    def _remove(self, request: RequestId) -> None:
        tenant, hits = self._found.pop(request)
        ages, places = self._by_age[tenant], self._by_hits[tenant]
        del ages[bisect_left(ages, request)]
        del places[bisect_left(places, (-hits, request))]
        if not ages:
            del self._by_age[tenant], self._by_hits[tenant]
