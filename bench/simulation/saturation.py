"""How much of a load a machine can do."""

from dataclasses import replace

from bench.simulation.choice import Choice
from bench.simulation.demand import Demand, Load
from bench.simulation.engine import simulate
from bench.simulation.loads import BadLoad
from bench.simulation.profile import Profile

FCFS = Choice("fcfs", "fcfs")


def capacity(load: Load, profile: Profile) -> float:
    """The multiple of the load's rate at which requests arrive as fast as the machine answers
    them with `fcfs` when it always has enough to do. Raises BadLoad where all come at once."""
    at_once = [Demand(replace(demand.arrival, at_s=0.0)) for demand in load.demands]
    span_s = load.demands[-1].arrival.at_s
    if not span_s:
        raise BadLoad(f"{load.name}: all arrive at once, which is no rate")
    return span_s / simulate(replace(load, demands=at_once), profile, FCFS).ended_s
