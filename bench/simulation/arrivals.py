"""Who brings requests to a simulated engine, and when."""

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from bench.simulation.demand import Demand, Load


class Source(Protocol):
    """Brings each request of a load once."""

    def due(self, now_s: float, open_requests: int) -> Iterator[tuple[float, Demand]]:
        """Requests that have arrived by now, with when they did."""

    def next_s(self, now_s: float) -> float | None:
        """When the next arrives, given that nobody is open now; None when all have."""


class OpenLoop:
    """Requests arrive when the load says, however many are open."""

    def __init__(self, load: Load) -> None:
        self._left = deque(load.demands)

    def due(self, now_s: float, open_requests: int) -> Iterator[tuple[float, Demand]]:
        while self._left and self._left[0].arrival.at_s <= now_s:
            demand = self._left.popleft()
            yield demand.arrival.at_s, demand

    def next_s(self, now_s: float) -> float | None:
        return self._left[0].arrival.at_s if self._left else None


class ClosedLoop:
    """So many clients, each with one request open until there are no more."""

    def __init__(self, load: Load, clients: int) -> None:
        self._left = deque(load.demands)
        self._clients = clients

    def due(self, now_s: float, open_requests: int) -> Iterator[tuple[float, Demand]]:
        for _ in range(min(self._clients - open_requests, len(self._left))):
            yield now_s, self._left.popleft()

    def next_s(self, now_s: float) -> float | None:
        return now_s if self._left else None


def source(load: Load) -> Source:
    """As the load says."""
    return OpenLoop(load) if load.clients is None else ClosedLoop(load, load.clients)
