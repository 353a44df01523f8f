"""Virtual token counters: which tenant had least, by weight (VTC, OSDI 2024)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count

from schedulers.interface import Served

NOTHING = Served()
SPARE = 1024


@dataclass(frozen=True, slots=True)
class Prices:
    """What a token costs, and the share of a tenant against others (1 when absent)."""

    input_weight: float
    output_weight: float
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for a price or share that is not above 0 and finite."""
        named = {f"weights[{tenant!r}]": weight for tenant, weight in self.weights.items()}
        costs = {"input_weight": self.input_weight, "output_weight": self.output_weight}
        for name, value in (named | costs).items():
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} is {value}, it must be above 0 and finite")

    def cost(self, tenant: str, served: Served, granted: int) -> float:
        """Of all that a tenant was served, and of `granted` prompt tokens more."""
        tokens = (served.input_tokens + granted) * self.input_weight
        tokens += served.output_tokens * self.output_weight
        return tokens / self.weights.get(tenant, 1.0)


class Counters:
    """A counter for each tenant: the cost of what it was served, and what it was lifted.

    A tenant that comes back is lifted to the least of those who want something, so that
    nobody saves up by staying away, and to where the last grant left its tenant: else ever
    new tenants would each start at the least and keep the others from ever being it.

    Those who want something lie in a heap by what their counters were. Counters only grow,
    so it is enough to bring the top up to date when it is read, and a step costs
    O(changes x log tenants).
    """

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._served: Mapping[str, Served] = {}
        self._granted: dict[str, int] = {}  # in this step
        self._passed: list[str] = []  # in this step
        self._now: dict[str, float] = {}  # in this step
        self._lift: dict[str, float] = {}
        self._clock = 0.0  # where the furthest grant left its tenant
        self._turns = count()
        self._wanting: dict[str, int] = {}  # with the turn that breaks ties
        self._heap: list[tuple[float, int, str]] = []
        self._entry: dict[str, float] = {}  # the one entry of a tenant that counts

    def observe(self, served: Mapping[str, Served]) -> None:
        """A new step: what was granted in the last one has been served, or has not."""
        again = [*self._granted, *self._passed]
        self._served = served
        self._granted, self._passed, self._now = {}, [], {}
        for tenant in again:
            if tenant in self._wanting:
                self._push(tenant)
        self._forget()

    def of(self, tenant: str) -> float:
        """The counter, with what was granted in this step. One that never wanted anything
        stands with the least."""
        found = self._now.get(tenant)
        if found is None:
            cost = self._cost(tenant)
            if tenant not in self._lift:
                self._lift[tenant] = self._floor() - cost
            found = self._now[tenant] = cost + self._lift[tenant]
        return found

    def enter(self, tenants: Iterable[str]) -> None:
        """These want something. Lifts those that did not before."""
        floor = self._floor()
        for tenant in tenants:
            if tenant not in self._wanting:
                least = floor - self._cost(tenant)
                self._lift[tenant] = max(least, self._lift.get(tenant, least))
                self._now.pop(tenant, None)
                self._wanting[tenant] = next(self._turns)
                self._push(tenant)

    def leave(self, tenants: Iterable[str]) -> None:
        """These want nothing any more."""
        for tenant in tenants:
            self._wanting.pop(tenant, None)
            self._entry.pop(tenant, None)

    def least(self) -> str | None:
        """Of those who want something, whose counter is least; of equals who came first."""
        while self._heap:
            was, _, tenant = self._heap[0]
            if self._entry.get(tenant) == was:
                if self.of(tenant) <= was:
                    return tenant
                self._push(tenant)
            heappop(self._heap)
        return None

    def charge(self, tenant: str, tokens: int) -> None:
        """`tokens` were granted in this step."""
        self._granted[tenant] = self._granted.get(tenant, 0) + tokens
        self._now.pop(tenant, None)
        self._clock = max(self._clock, self.of(tenant))

    def pass_by(self, tenant: str) -> None:
        """It is not to be the least again in this step."""
        self._entry.pop(tenant, None)
        self._passed.append(tenant)

    def _forget(self) -> None:
        """Tenants that want nothing and stand no higher than where one who comes back is
        lifted to; and entries of the heap that do not count."""
        if len(self._lift) > 2 * (len(self._wanting) + SPARE):
            floor = self._floor()
            for tenant in [t for t in self._lift if t not in self._wanting]:
                if self.of(tenant) <= floor:
                    del self._lift[tenant]
            self._now.clear()
        if len(self._heap) > 2 * (len(self._entry) + SPARE):
            self._heap = [
                (value, self._wanting[tenant], tenant) for tenant, value in self._entry.items()
            ]
            heapify(self._heap)

    def _cost(self, tenant: str) -> float:
        served, granted = self._served.get(tenant, NOTHING), self._granted.get(tenant, 0)
        return self._prices.cost(tenant, served, granted)

    def _floor(self) -> float:
        least = self.least()
        return self._clock if least is None else max(self._clock, self.of(least))

    def _push(self, tenant: str) -> None:
        value = self._entry[tenant] = self.of(tenant)
        heappush(self._heap, (value, self._wanting[tenant], tenant))
