"""What is asked for: a recorded hour made to fit some minutes and this machine, with the
classes that a trace does not tell."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bench.simulation.demand import Load, Rules, demands
from bench.simulation.profile import Profile
from bench.trace import SAMPLE, Arrival, Scale, read_trace, scaled


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """`minutes` is how long requests arrive, at the trace's own moments, brought closer
    together. Token counts are multiplied by `tokens`. `times` the capacity are kept, drawn at
    random. A share `hurried` of the requests has a deadline, `slack` times what the request
    takes alone; the callers of all others leave after `patience_s`, untold."""

    trace: str
    minutes: float = 10.0
    tokens: float = 0.2
    times: float = 2.0
    priorities: tuple[tuple[int, float], ...] = ((12, 0.1), (4, 0.9))
    tenants: tuple[tuple[str, float], ...] = (("flood", 0.95), ("light", 0.05))
    hurried: float = 0.3
    slack: float = 8.0
    patience_s: float = 150.0
    seed: int = 0

    @property
    def span_s(self) -> float:
        """For which requests arrive."""
        return 60 * self.minutes


def recorded(traffic: Traffic, context_tokens: int) -> list[Arrival]:
    """All of the trace, as long as it is to last and with its tokens scaled. Raises OSError
    and ValueError for a file that is no trace."""
    trace = read_trace(SAMPLE if traffic.trace == "sample" else Path(traffic.trace))
    whole_s = trace[-1].at_s if trace else 0.0
    if not whole_s:
        raise ValueError(f"{traffic.trace}: a trace of at least two moments is needed")
    return list(scaled(trace, Scale(traffic.span_s / whole_s, traffic.tokens, context_tokens)))


def kept(arrivals: Sequence[Arrival], requests_per_s: float, seed: int) -> list[Arrival]:
    """`requests_per_s` on average, drawn at random, so that busy minutes stay busy. Raises
    ValueError when there are not as many."""
    share = requests_per_s * arrivals[-1].at_s / len(arrivals)
    if share > 1:
        raise ValueError(
            f"{requests_per_s:.2f} requests/s are wanted, {share:.2f} times what the trace has "
            "in that time: fewer minutes or larger token counts make it enough"
        )
    draw = random.Random(f"kept {seed}")
    return [arrival for arrival in arrivals if draw.random() < share]


def load_of(traffic: Traffic, arrivals: Sequence[Arrival], profile: Profile) -> Load:
    """These arrivals with classes."""
    rules = Rules(
        traffic.priorities,
        traffic.tenants,
        traffic.slack,
        traffic.seed,
        timed_share=traffic.hurried,
    )
    found = [
        replace(demand, patience_s=traffic.patience_s)
        for demand in demands(arrivals, rules, profile.costs.alone_s)
    ]
    return Load(f"{Path(traffic.trace).stem}, {len(found)} requests", found)


@dataclass(frozen=True, slots=True)
class Class:
    """A class of requests, by what figures call it."""

    name: str
    priority: int | None = None
    tenant: str | None = None
    hurried: bool | None = None


def classes(traffic: Traffic) -> list[Class]:
    """Those of the traffic."""
    return [
        *(Class(f"priority_{level}", priority=level) for level, _ in traffic.priorities),
        *(Class(f"tenant_{name}", tenant=name) for name, _ in traffic.tenants),
        Class("hurried", hurried=True),
    ]
