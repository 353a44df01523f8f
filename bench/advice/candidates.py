"""What is tried: strategies that the traffic gives something to do, and other limits."""

from collections.abc import Callable, Iterator

from bench.advice.objective import has_deadlines, has_priorities, has_tenants
from bench.advice.trial import Candidate, Limits
from bench.simulation.choice import Choice
from bench.simulation.demand import Load
from bench.simulation.figures import SLO
from bench.simulation.profile import Profile

Change = Callable[[Profile], Limits]


def strategies(load: Load) -> Iterator[Candidate]:
    """Of equals the first is the one to take: the plainest, then those made for what the
    traffic asks."""
    names = ["fcfs"]
    if has_priorities(load):
        names.append("priority")
    if has_tenants(load):
        names.append("fair")
    if has_deadlines(load):
        names.append("deadline")
    names.append("shortest")
    if load.shares_prefixes:
        names.append("cache")
    for name in names:
        yield Candidate(Choice(name, name))


def changes(slo: SLO) -> list[Change]:
    """Of limits, one at a time: the rows and the tokens of a step halved and doubled, and steps
    as short as the SLO's time between tokens, then half of it."""

    def scaled(name: str, factor: float) -> Change:
        def change(machine: Profile) -> Limits:
            return {name: int(factor * getattr(machine, name))}

        return change

    def shorter(machine: Profile) -> Limits:
        gap_s = machine.target_gap_s
        return {"target_gap_s": slo.tpot_s if gap_s is None else gap_s / 2}

    both = ((name, factor) for name in ("max_rows", "max_step_tokens") for factor in (0.5, 2))
    return [*(scaled(name, factor) for name, factor in both), shorter]


def changed(candidate: Candidate, change: Change, profile: Profile) -> Candidate | None:
    """The candidate with a limit changed; None where rows that decode would fill a step."""
    limits = candidate.limits | change(candidate.machine(profile))
    given = {name: of for name, of in limits.items() if of != getattr(profile, name)}
    if 0 in given.values():
        return None
    found = Candidate(candidate.choice, given)
    machine = found.machine(profile)
    return found if machine.max_step_tokens > machine.max_rows else None
