"""What is asked of a simulated engine: arrivals with priorities, tenants and deadlines."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from bench.trace import Arrival

T = TypeVar("T")
PRIORITY = 4


@dataclass(frozen=True, slots=True)
class Demand:
    """One request. `deadline_s` counts from its arrival: the answer is wanted by then, and
    the caller leaves when it is not there."""

    arrival: Arrival
    priority: int = PRIORITY
    tenant: str = ""
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """Requests in order of arrival. With `clients` it is a closed loop: arrival times do not
    count, each client sends its next request when its last has ended."""

    name: str
    demands: Sequence[Demand]
    clients: int | None = None

    @property
    def shares_prefixes(self) -> bool:
        """Whether it is known which prompts begin alike."""
        return any(demand.arrival.blocks for demand in self.demands)


@dataclass(frozen=True, slots=True)
class Rules:
    """What a trace does not say, drawn at random: values with their shares. A deadline is
    `slack` times what the request would take alone."""

    priorities: Sequence[tuple[int, float]] = ((PRIORITY, 1.0),)
    tenants: Sequence[tuple[str, float]] = (("", 1.0),)
    slack: float | None = None
    seed: int = 0


def demands(
    arrivals: Iterable[Arrival], rules: Rules, alone_s: Callable[[int, int], float]
) -> list[Demand]:
    """Arrivals with what the rules add; the same seed gives the same. `alone_s` estimates
    seconds from prompt and output tokens."""
    draw = random.Random(rules.seed)
    found = []
    for arrival in arrivals:
        # Both in any case: a rule that is added leaves what the other draws as it was.
        priority, tenant = _draw(draw, rules.priorities), _draw(draw, rules.tenants)
        demand = Demand(arrival, priority, tenant)
        if rules.slack is not None:
            ideal_s = alone_s(arrival.prompt_tokens, arrival.output_tokens)
            demand = replace(demand, deadline_s=rules.slack * ideal_s)
        found.append(demand)
    return found


def _draw(source: random.Random, shares: Sequence[tuple[T, float]]) -> T:
    values = [value for value, _ in shares]
    return source.choices(values, [share for _, share in shares])[0]


def parse_shares(text: str) -> list[tuple[str, float]]:
    """`a:0.9,b:0.1`; shares need not add up to 1. Raises ValueError."""
    found = []
    for part in text.split(","):
        value, colon, share = part.strip().rpartition(":")
        try:
            weight = float(share)
        except ValueError:
            weight = 0.0
        if not colon or not weight > 0:
            raise ValueError(f"{part!r} is not of the form VALUE:SHARE")
        found.append((value, weight))
    return found
