"""How many of a trace's requests a machine answers in a second when it always has enough to
do, by simulation."""

import random
from collections.abc import Sequence
from dataclasses import replace

from bench.simulation.choice import Choice
from bench.simulation.demand import Demand, Load
from bench.simulation.engine import simulate
from bench.simulation.profile import Profile
from bench.trace import Arrival

REQUESTS = 400
CROWD = 2  # clients for each row, so that a row never waits for one


def capacity_per_s(arrivals: Sequence[Arrival], profile: Profile) -> float:
    """Of `fcfs` in a closed loop, over requests drawn from the trace."""
    load = closed_loop(arrivals, REQUESTS, CROWD * profile.max_rows)
    run = simulate(load, profile, Choice("capacity", "fcfs"))
    return len(load.demands) / run.ended_s


def closed_loop(arrivals: Sequence[Arrival], count: int, clients: int) -> Load:
    """A few of the trace's requests, always the same, asked for one after the other."""
    draw = random.Random("closed loop")
    some = draw.sample(arrivals, min(count, len(arrivals)))
    demands = [Demand(replace(arrival, at_s=0.0)) for arrival in some]
    return Load("closed loop", demands, clients)
