"""A fair share of tokens for each tenant."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from schedulers.counters import Counters, Prices
from schedulers.draft import Draft
from schedulers.eviction import DOC, Evictions, Way
from schedulers.interface import ALWAYS, Plan, Promise, RequestView, Snapshot
from schedulers.queue import WaitingQueue
from schedulers.running import by_age, continue_running


@dataclass(frozen=True, slots=True)
class FairOptions:
    """Options of `fair`."""

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


class Fair:
    """The tenant whose counter is least is next, with its oldest request; under pressure
    those of the tenant that had most give way. Work-conserving: a share that nobody wants
    goes to whoever does.

    Two tenants that both have requests waiting throughout get the same cost, divided by
    weight, to within 2U, where U is the most that the running requests of one tenant may
    still cost: a counter goes ahead of the other's only by what was admitted while it was
    the least (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024). With R
    rows, prompts of at most P and answers of at most A tokens, at weight w, U is
    R * (P * input_weight + A * output_weight) / w.

    New tenants start where the last grant left its tenant, which each grant raises by what it
    computes of a prompt, by weight. So while ever new tenants come, one whose counter is D
    above that waits until such grants came to D: each has an end to its wait, but after a long
    answer many short prompts of new tenants go first.

    Tokens count when they are computed, prompts chunk by chunk, cached or recomputed ones
    not at all. All counters begin at 0 after an exchange.
    """

    Options: ClassVar[type[FairOptions]] = FairOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS | {
        Promise.NO_STARVATION,
        Promise.WORK_CONSERVING,
    }

    def __init__(self, options: FairOptions) -> None:
        self.options = options
        self._prices = options.prices
        self._queue = WaitingQueue(by_age, lane=lambda view: view.tenant)
        self._counters = Counters(self._prices)
        self._swapped: set[str] = set()

    def plan(self, snap: Snapshot) -> Plan:
        self._observe(snap)
        draft, counter = Draft(snap), self._counters.of
        how = Evictions(self.options.eviction, snap)
        continue_running(snap, draft, how, lambda view: counter(view.tenant))
        if not draft.evicted:
            self._join(snap, draft)
        return draft.plan()

    def _observe(self, snap: Snapshot) -> None:
        if snap.rebuild:
            self._counters = Counters(self._prices)
            self._swapped = set()
        changed = self._queue.sync(snap)
        swapped = {view.tenant for view in snap.swapped.values()}
        changed |= swapped ^ self._swapped
        self._swapped = swapped
        lanes = self._queue.lanes
        wanting = {tenant for tenant in changed if tenant in lanes or tenant in swapped}
        self._counters.observe(snap.served)
        self._counters.leave(sorted(changed - wanting))
        self._counters.enter(sorted(wanting))

    def _join(self, snap: Snapshot, draft: Draft) -> None:
        """Up to the first that finds no room: nobody behind it goes ahead."""
        lanes: dict[str, Iterator[RequestView]] = {}
        while draft.budget and (tenant := self._counters.least()) is not None:
            if tenant not in lanes:
                lanes[tenant] = self._queue.candidates(snap, tenant)
            view = next(lanes[tenant], None)
            if view is None:
                self._counters.pass_by(tenant)
            elif tokens := draft.admit(view):
                self._counters.charge(tenant, tokens)
            else:
                return
