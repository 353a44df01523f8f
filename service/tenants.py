"""Tokens served for each tenant: outlives every strategy, but not every name that a caller
invents."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from schedulers.interface import Served

KEPT = 4096


class ServedTokens:
    """Counts by tenant. Of tenants without a live request the `KEPT` that were served last
    are remembered at least, twice as many at most. `live` names the tenants of all live
    requests."""

    def __init__(self, live: Callable[[], Iterable[str]]) -> None:
        self._live = live
        self._served: dict[str, Served] = {}  # served longest ago first
        self._view = MappingProxyType(self._served)
        self._step: dict[str, list[int]] = {}

    def add(self, tenant: str, input_tokens: int, output_tokens: int) -> None:
        """So many tokens more; seen in the view from the next `settle` on."""
        counts = self._step.get(tenant)
        if counts is None:
            counts = self._step[tenant] = [0, 0]
        counts[0] += input_tokens
        counts[1] += output_tokens

    def settle(self) -> Mapping[str, Served]:
        """A read-only, live view, brought up to date. Once a step: O(tenants served in it)."""
        for tenant, (input_tokens, output_tokens) in self._step.items():
            before = self._served.pop(tenant, Served())
            self._served[tenant] = Served(
                before.input_tokens + input_tokens, before.output_tokens + output_tokens
            )
        self._step.clear()
        if len(self._served) > 2 * KEPT:
            self._forget()
        return self._view

    def _forget(self) -> None:
        live = set(self._live())
        gone = [tenant for tenant in self._served if tenant not in live]
        for tenant in gone[: max(0, len(gone) - KEPT)]:
            del self._served[tenant]
