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
    the caller leaves when it is not there. So it does after `patience_s`, which no strategy is
    told. It stays when the first token comes later than `first_token_deadline_s`, from its
    arrival too, or the others more slowly than `tokens_per_second`. Its `max_tokens` is the
    length of its answer if it is `told`, else all that the machine has room for, and the model
    ends the answer by a stop token."""

    arrival: Arrival
    priority: int = PRIORITY
    tenant: str = ""
    deadline_s: float | None = None
    first_token_deadline_s: float | None = None
    tokens_per_second: float | None = None
    told: bool = True
    patience_s: float | None = None

    @property
    def leaves_s(self) -> float | None:
        """When the caller leaves, from its arrival on."""
        limits = [s for s in (self.deadline_s, self.patience_s) if s is not None]
        return min(limits, default=None)


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
    `slack` times what the request would take alone, one for the first token is
    `first_token_slack` times what that would take; `pace` is in tokens a second. A request
    has all of the three that are given, or with `1 - timed_share` none. `told`: whether a
    strategy is told how long answers will be."""

    priorities: Sequence[tuple[int, float]] = ((PRIORITY, 1.0),)
    tenants: Sequence[tuple[str, float]] = (("", 1.0),)
    slack: float | None = None
    seed: int = 0
    first_token_slack: float | None = None
    pace: float | None = None
    timed_share: float = 1.0
    told: bool = True


def demands(
    arrivals: Iterable[Arrival], rules: Rules, alone_s: Callable[[int, int], float]
) -> list[Demand]:
    """Arrivals with what the rules add; the same seed gives the same. `alone_s` estimates
    seconds from prompt and output tokens."""
    draw, draw_timed = random.Random(rules.seed), random.Random(f"timed {rules.seed}")
    found = []
    for arrival in arrivals:
        # All in any case: a rule that is added leaves what the others draw as it was.
        priority, tenant = _draw(draw, rules.priorities), _draw(draw, rules.tenants)
        demand = Demand(arrival, priority, tenant, told=rules.told)
        timed = draw_timed.random() < rules.timed_share
        found.append(_timed(demand, rules, alone_s) if timed else demand)
    return found


def _timed(demand: Demand, rules: Rules, alone_s: Callable[[int, int], float]) -> Demand:
    prompt, output = demand.arrival.prompt_tokens, demand.arrival.output_tokens
    return replace(
        demand,
        deadline_s=_times(rules.slack, alone_s(prompt, output)),
        first_token_deadline_s=_times(rules.first_token_slack, alone_s(prompt, 1)),
        tokens_per_second=rules.pace,
    )


def _times(slack: float | None, seconds: float) -> float | None:
    return None if slack is None else slack * seconds


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
