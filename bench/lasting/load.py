"""A trace as a load that lasts: in its own pattern, under overload, with classes."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice

from bench.simulation.capacity import hastened
from bench.simulation.demand import Load, Rules, demands
from bench.simulation.loads import BadLoad, Cut, trace_load
from bench.simulation.profile import Profile
from bench.simulation.saturation import capacity
from bench.trace import Arrival

URGENT, LIGHT = 12, "light"
RULES = Rules(
    priorities=((URGENT, 0.1), (4, 0.9)),
    tenants=(("flood", 0.95), (LIGHT, 0.05)),
    slack=16.0,
    timed_share=0.3,
    told=False,
)
TURNS = 4
PATIENCE = 10.0, 60.0  # times what a mean request takes alone


def lasting_load(
    trace: str, requests: int, times: float, profile: Profile, seed: int = 0
) -> Load:
    """The first part of a trace TURNS times over, `requests` in all, at `times` the rate that
    a busy engine answers them at; the trace itself over and over where it has fewer. So each
    turn asks for the same, the first one fills the queue up, and the others can be compared. A
    tenth is urgent, a twentieth is of the light tenant, three in ten have deadlines; no length
    is told. All callers leave in the end, untold, some soon and some late, so a queue stops
    growing. Raises BadLoad, or OSError
    for a file that cannot be read."""
    found = trace_load(trace, Cut(requests=requests // TURNS), Rules(told=False), profile)
    arrivals = [demand.arrival for demand in found.demands]
    alone_s = profile.costs.alone_s
    mean_s = sum(alone_s(a.prompt_tokens, a.output_tokens) for a in arrivals) / len(arrivals)
    turn = list(islice(_over_and_over(arrivals), requests // TURNS))
    whole = islice(_over_and_over(turn), requests)
    draw = random.Random(f"patience {seed}")
    load = Load(
        f"{found.name}, in turns to {requests}",
        [
            replace(demand, patience_s=draw.uniform(*PATIENCE) * mean_s)
            for demand in demands(whole, replace(RULES, seed=seed), alone_s)
        ],
    )
    return hastened(load, times * capacity(found, profile))


def _over_and_over(arrivals: list[Arrival]) -> Iterator[Arrival]:
    """Each turn begins a mean gap after the last one's end."""
    span_s = arrivals[-1].at_s
    if not span_s:
        raise BadLoad("all requests of the trace arrive at once, which is no pattern")
    turn_s = span_s * len(arrivals) / (len(arrivals) - 1)
    for turn in count():
        for arrival in arrivals:
            yield replace(arrival, at_s=arrival.at_s + turn * turn_s)
