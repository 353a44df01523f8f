"""Longest cached prefix first, fair between tenants."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from schedulers.counters import Prices
from schedulers.deficits import Deficits
from schedulers.draft import Draft
from schedulers.eviction import DOC, Evictions, Way
from schedulers.hits import HitQueue, Place
from schedulers.interface import ALWAYS, Plan, Promise, RequestId, RequestView, Snapshot
from schedulers.running import continue_running

MAX_ASKED = 8  # in a pick: requests whose cached prefix is not what it was
MAX_TENANTS = 64  # compared in a pick


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """Options of `cache`."""

    quantum: float = field(
        default=2048.0,
        metadata={
            "doc": "Cost that a tenant is served at a time, in prompt tokens: more leaves more "
            "choice between prefixes, less is closer to equal shares."
        },
    )
    oldest_each: int = field(
        default=10,
        metadata={"doc": "Of this many admissions of a tenant one is of its oldest request."},
    )
    weights: Mapping[str, float] = field(
        default_factory=dict,
        metadata={"doc": "Share of a tenant against others; 1 for those not named."},
    )
    input_weight: float = field(default=1.0, metadata={"doc": "Cost of a prompt token."})
    output_weight: float = field(default=2.0, metadata={"doc": "Cost of an output token."})
    eviction: Way = field(default="recompute", metadata={"doc": DOC})

    @property
    def prices(self) -> Prices:
        """What a token costs, and whose share is how large."""
        return Prices(self.input_weight, self.output_weight, self.weights)

    def __post_init__(self) -> None:
        _ = self.prices  # raises ValueError for a bad one
        if not 1 <= self.quantum < float("inf"):
            raise ValueError(f"quantum is {self.quantum}, it must be at least 1 and finite")
        if self.oldest_each < 1:
            raise ValueError(f"oldest_each is {self.oldest_each}, below 1")


class Cache:
    """Of the tenants that have credit, the request with the longest cached prefix (DLPM, arXiv
    2501.14312; `HitQueue`, `Deficits`): requests that share a prefix are served together,
    before the cache forgets it. Running ones go on; when pages run out the newest is preempted.

    A tenant that is D in debt has its turn after D / Q + 1 rounds; in each, every tenant that
    waits, also a new one, is served Q and one request more. Between tenants: two that both have
    requests waiting throughout get the same cost, divided by weight, to within 2 (Q + U), with
    Q the quantum and U the most that the running requests of one tenant may still cost (see
    `Fair`). Within a tenant: one admission in `oldest_each`
    is of its oldest request, so with k older ones a request is admitted within
    (k + 1) * oldest_each admissions of its tenant; one that is preempted counts again.

    With more than MAX_TENANTS tenants a pick compares that many, in turn.
    """

    Options: ClassVar[type[CacheOptions]] = CacheOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS | {
        Promise.NO_STARVATION,
        Promise.WORK_CONSERVING,
    }

    def __init__(self, options: CacheOptions) -> None:
        self.options = options
        self._prices = options.prices
        self._queue = HitQueue()
        self._forget()

    def _forget(self) -> None:
        self._deficits = Deficits(self._prices, self.options.quantum)
        self._admitted: dict[str, int] = {}  # of a tenant, since its oldest
        self._turn = 0

    def plan(self, snap: Snapshot) -> Plan:
        if snap.rebuild:
            self._forget()
        self._queue.sync(snap)
        tenants = self._queue.tenants
        self._deficits.observe(snap.served, tenants)
        self._admitted = {t: n for t, n in self._admitted.items() if t in tenants}
        draft = Draft(snap)
        continue_running(snap, draft, Evictions(self.options.eviction, snap))
        if not draft.evicted and all(draft.admit(view) for view in snap.swapped.values()):
            self._join(snap, draft)
        return draft.plan()

    def _join(self, snap: Snapshot, draft: Draft) -> None:
        """Up to the first that finds no room: none behind it goes ahead."""
        joined: set[RequestId] = set()
        tenants = list(self._queue.tenants)
        while draft.budget and draft.rows > 0 and tenants:
            place = self._best(snap, tenants, joined)
            if place is None:
                tenants = self._refilled(tenants, joined)
                continue
            view = self._of_tenant(snap, snap.waiting[place[1]], joined)
            tokens = draft.admit(view)
            if not tokens:
                return
            joined.add(view.id)
            self._deficits.charge(view.tenant, tokens)
            is_oldest = view.id == self._queue.oldest(view.tenant, joined - {view.id})
            self._admitted[view.tenant] = (
                0 if is_oldest else self._admitted.get(view.tenant, 0) + 1
            )

    def _refilled(self, tenants: list[str], joined: set[RequestId]) -> list[str]:
        left = [t for t in tenants if self._queue.oldest(t, joined) is not None]
        if left:
            self._deficits.refill(left)
        return left

    def _of_tenant(
        self, snap: Snapshot, view: RequestView, joined: set[RequestId]
    ) -> RequestView:
        """`view`, or the oldest of its tenant when its turn has come."""
        if self._admitted.get(view.tenant, 0) + 1 < self.options.oldest_each:
            return view
        oldest = self._queue.oldest(view.tenant, joined)
        return view if oldest is None else snap.waiting[oldest]

    def _best(self, snap: Snapshot, tenants: list[str], joined: set[RequestId]) -> Place | None:
        """Of tenants with credit, the longest cached prefix; None when none has credit."""
        for _ in range(0, len(tenants), MAX_TENANTS):
            start = self._turn % len(tenants)
            some = tenants[start : start + MAX_TENANTS]
            some += tenants[: max(0, min(start, start + MAX_TENANTS - len(tenants)))]
            some = [tenant for tenant in some if self._deficits.of(tenant) > 0]
            for _ in range(MAX_ASKED):
                places = (self._queue.best(tenant, joined) for tenant in some)
                best = min((place for place in places if place is not None), default=None)
                if best is None or not self._queue.ask(snap, best[1]):
                    break
            if best is not None:
                return best
            self._turn = start + MAX_TENANTS
        return None
