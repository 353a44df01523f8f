"""The most of a load that a machine keeps up with."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.simulation.demand import Demand, Load
from bench.simulation.engine import simulate
from bench.simulation.loads import BadLoad
from bench.simulation.profile import Profile
from bench.simulation.saturation import FCFS
from bench.simulation.saturation import capacity as saturation

LATE_SHARE = 0.05
PRECISION = 1.03
STEP = 1.25
MOST = 4.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """`times` the load's own rate, which is `requests_per_s`. `saturated` times it would be
    answered by an engine that always has enough to do: bursts and lulls cost the rest."""

    times: float
    requests_per_s: float
    saturated: float


def hastened(load: Load, times: float) -> Load:
    """The same requests, arriving `times` as fast."""
    demands = [
        replace(demand, arrival=replace(demand.arrival, at_s=demand.arrival.at_s / times))
        for demand in load.demands
    ]
    return replace(load, demands=demands)


def find_capacity(
    load: Load, profile: Profile, progress: Callable[[float], object] = lambda times: None
) -> Capacity:
    """The highest rate that the engine keeps up with under `fcfs`, to 3 %, by bisection: it is
    done at most 5 % of the time of arrivals later than an engine that answers each request as
    if it was alone. So what arrives can be computed while it arrives; bursts may wait, as long
    as they drain by the end. `progress` hears each rate that is tried. Raises BadLoad for a
    closed loop and where all arrive at once."""
    if load.clients is not None:
        raise BadLoad(f"{load.name}: clients of a closed loop wait, so it has no capacity")
    plain = replace(load, demands=[Demand(d.arrival, told=d.told) for d in load.demands])

    def keeps_up(times: float) -> bool:
        progress(times)
        return _keeps_up(hastened(plain, times), profile)

    saturated = saturation(plain, profile)
    low, high = _bracket(saturated, keeps_up)
    if high > MOST * saturated:
        raise BadLoad(f"{load.name}: too few requests for any queue, so it has no capacity")
    while high > PRECISION * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if keeps_up(middle) else (low, middle)
    rate_per_s = len(load.demands) / load.demands[-1].arrival.at_s
    return Capacity(low, low * rate_per_s, saturated)


def _bracket(times: float, keeps_up: Callable[[float], bool]) -> tuple[float, float]:
    """A rate that is kept up with, and one that is not; gives up far above `times`."""
    if keeps_up(times):
        high = times * STEP
        while high <= MOST * times and keeps_up(high):
            high *= STEP
        return high / STEP, high
    low = times / STEP
    while not keeps_up(low):
        low /= STEP
    return low, low * STEP


def _keeps_up(load: Load, profile: Profile) -> bool:
    arrivals = [demand.arrival for demand in load.demands]
    alone_s = profile.costs.alone_s
    ideal_s = max(a.at_s + alone_s(a.prompt_tokens, a.output_tokens) for a in arrivals)
    late_s = simulate(load, profile, FCFS).ended_s - ideal_s
    return late_s <= LATE_SHARE * arrivals[-1].at_s
