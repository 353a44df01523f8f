"""Deficit counters: which tenants may be served before others are (DLPM, arXiv 2501.14312)."""

from collections.abc import Iterable, Mapping

from schedulers.counters import NOTHING, SPARE, Prices
from schedulers.interface import Served


class Deficits:
    """A credit for each tenant. What it is served is taken off, and when no tenant that
    waits has any, each of them gets `quantum`, as often as one needs to be above 0.

    One that comes, or comes again, has no credit until then, so ever new tenants keep
    no other from its turn; debts shrink by what others that wait are given. Two tenants that
    wait throughout get the same quanta, so their cost differs by no more than their credits
    do.
    """

    def __init__(self, prices: Prices, quantum: float) -> None:
        self._prices = prices
        self._quantum = quantum
        self._served: Mapping[str, Served] = {}
        self._granted: dict[str, int] = {}  # in this step
        self._given: dict[str, float] = {}  # credit and what was served
        self._rounds = 0  # of quanta so far
        self._left: dict[str, int] = {}  # those that do not wait: in which round they left
        self._waiting: set[str] = set()
        self._room = 2 * SPARE  # in `_left`, before those in it are looked at again

    def observe(self, served: Mapping[str, Served], waiting: Iterable[str]) -> None:
        """A new step: what was granted in the last one has been served, or has not."""
        self._served, self._granted = served, {}
        waiting = set(waiting)
        for tenant in self._waiting - waiting:
            self._left[tenant] = self._rounds
        for tenant in waiting - self._waiting:
            self._enter(tenant)
        self._waiting = waiting
        if len(self._left) > self._room:
            self._forget()
            self._room = 2 * (len(self._left) + len(waiting) + SPARE)

    def of(self, tenant: str) -> float:
        """The credit, less what was granted in this step."""
        return self._given[tenant] - self._cost(tenant)

    def charge(self, tenant: str, tokens: int) -> None:
        """`tokens` were granted in this step."""
        self._granted[tenant] = self._granted.get(tenant, 0) + tokens

    def refill(self, tenants: Iterable[str]) -> None:
        """None of these, all that wait, has credit."""
        tenants = list(tenants)
        first = max(tenants, key=self.of)
        rounds = 1 + int(-self.of(first) // self._quantum)
        while self._given[first] + rounds * self._quantum <= self._cost(first):
            rounds *= 2  # a float as large as the cost did not hold the sum
        self._rounds += rounds
        for tenant in tenants:
            self._given[tenant] += rounds * self._quantum

    def _enter(self, tenant: str) -> None:
        cost = self._cost(tenant)
        credit = self._given.get(tenant, cost) - cost
        missed = (self._rounds - self._left.pop(tenant, self._rounds)) * self._quantum
        self._given[tenant] = cost + min(0.0, credit + missed)

    def _forget(self) -> None:
        """Tenants that would come again as new ones do."""
        for tenant, round in list(self._left.items()):
            if self.of(tenant) + (self._rounds - round) * self._quantum >= 0:
                del self._left[tenant], self._given[tenant]

    def _cost(self, tenant: str) -> float:
        served, granted = self._served.get(tenant, NOTHING), self._granted.get(tenant, 0)
        return self._prices.cost(tenant, served, granted)
