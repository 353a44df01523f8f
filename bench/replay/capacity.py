"""How many of a trace's requests a second a machine keeps up with, by simulation."""

import random
from collections.abc import Sequence
from dataclasses import replace

from bench.replay.traffic import kept
from bench.simulation.capacity import find_capacity
from bench.simulation.choice import Choice
from bench.simulation.demand import Demand, Load
from bench.simulation.engine import simulate
from bench.simulation.profile import Profile
from bench.trace import Arrival

REQUESTS = 400
CROWD = 2  # clients for each row, so that a row never waits for one


def capacity_per_s(arrivals: Sequence[Arrival], profile: Profile, seed: int) -> float:
    """As `walkway simulate --capacity` finds it, near what a closed loop comes to: so the
    bursts and lulls are those of the minutes in which the trace is to fit. Raises ValueError
    when the trace has too few requests."""
    crowd = closed_loop(arrivals, REQUESTS, CROWD * profile.max_rows)
    busy_s = simulate(crowd, profile, Choice("capacity", "fcfs")).ended_s
    near = kept(arrivals, len(crowd.demands) / busy_s, seed)
    load = Load("the trace", [Demand(arrival) for arrival in near])
    return find_capacity(load, profile).requests_per_s


def closed_loop(arrivals: Sequence[Arrival], count: int, clients: int) -> Load:
    """A few of the trace's requests, always the same, asked for one after the other."""
    draw = random.Random("closed loop")
    some = draw.sample(arrivals, min(count, len(arrivals)))
    demands = [Demand(replace(arrival, at_s=0.0)) for arrival in some]
    return Load("closed loop", demands, clients)
