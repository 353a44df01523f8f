"""Runs one cell of the matrix."""

from dataclasses import replace

from bench.simulation.bound import bound
from bench.simulation.capacity import find_capacity
from bench.simulation.choice import Choice
from bench.simulation.demand import Load
from bench.simulation.engine import simulate
from bench.simulation.figures import usual_slo
from bench.simulation.loads import BadLoad, Cut, trace_load
from bench.simulation.profile import Profile
from bench.simulation.saturation import FCFS
from bench.study.cells import Cell, Ground
from bench.study.outcome import URGENT, Outcome, outcome
from bench.study.scenarios import ALONE, BOUND, IDLE, scenario
from bench.study.sources import digest
from schedulers.registry import find

BOUND_CODE = "bench.simulation.bound"
MACHINERY = ("bench.simulation.engine", "bench.simulation.loads", "bench.study.outcome")


def capacity(ground: Ground) -> float:
    """The speed-up of the trace that is a load of 1."""
    profile = ground.machine()
    return find_capacity(_load(ground, "throughput", 1.0, profile), profile).times


def measure(cell: Cell, capacity: float) -> Outcome:
    """Run a cell, whose ground has this capacity. Raises BadLoad."""
    profile = cell.ground.machine()
    load = _load(cell.ground, cell.scenario, cell.load * capacity, profile)
    if cell.strategy == BOUND:
        return _bound(load, profile)
    if cell.strategy in (ALONE, IDLE):
        load = _urgent_only(load, one_by_one=cell.strategy == IDLE)
    choice, error = _choice(cell.strategy), scenario(cell.scenario).cost_error
    return outcome(simulate(load, profile, choice, cost_error=error), usual_slo(profile))


def _bound(load: Load, profile: Profile) -> Outcome:
    found = bound(load, profile, usual_slo(profile))
    return Outcome(
        output_tokens_per_s=found.output_tokens_per_s,
        in_slo=found.in_slo,
        mean_completion_s=found.mean_total_s,
        deadlines_met=found.deadlines_met,
    )


def provenance(what: Cell | Ground) -> str:
    """A digest of what its result depends on beyond itself: the simulator, the strategy and
    the rules of the scenario."""
    if isinstance(what, Ground):
        return digest("", "bench.simulation.capacity", find(FCFS.name).__module__)
    strategy = BOUND_CODE
    if what.strategy != BOUND:
        strategy = find(_choice(what.strategy).target).__module__
    asked = scenario(what.scenario)
    how = (asked.rules, asked.cost_error, asked.paced)
    return digest(repr(how), *MACHINERY, strategy)


def _choice(label: str) -> Choice:
    return FCFS if label in (ALONE, IDLE) else Choice(label, label)


def _load(ground: Ground, kind: str, speedup: float, profile: Profile) -> Load:
    asked = scenario(kind)
    pace = 1 / usual_slo(profile).tpot_s if asked.paced else None
    rules = replace(asked.rules, seed=ground.seed, pace=pace)
    cut = Cut(requests=ground.requests, speedup=speedup)
    return trace_load(ground.trace, cut, rules, profile)


def _urgent_only(load: Load, one_by_one: bool) -> Load:
    urgent = [demand for demand in load.demands if demand.priority >= URGENT]
    if not urgent:
        raise BadLoad(f"{load.name}: none is urgent, so there are too few")
    return replace(load, demands=urgent, clients=1 if one_by_one else None)
