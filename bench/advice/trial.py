"""One strategy with limits, tried on the operator's trace."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from bench.advice.objective import Objective, Score
from bench.simulation.choice import Choice
from bench.simulation.demand import Load, Rules
from bench.simulation.engine import simulate
from bench.simulation.figures import SLO
from bench.simulation.loads import Cut, trace_load
from bench.simulation.profile import Profile

Limits = dict[str, int | float]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The operator's: a trace, which part of it, and what it does not say."""

    source: str
    cut: Cut
    rules: Rules

    def load(self, times: float, profile: Profile) -> Load:
        """As a load at this multiple of its rate. Raises BadLoad or OSError."""
        cut = replace(self.cut, speedup=times * self.cut.speedup)
        return trace_load(self.source, cut, self.rules, profile)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may serve the trace best: a strategy, and limits over those of the profile."""

    choice: Choice
    limits: Limits = field(default_factory=dict)

    @property
    def label(self) -> str:
        limits = (f"{name}={value:g}" for name, value in self.limits.items())
        return ", ".join((self.choice.label, *limits))

    def machine(self, profile: Profile) -> Profile:
        """The profile with the limits. Raises msgspec.ValidationError."""
        return msgspec.convert(msgspec.to_builtins(profile) | self.limits, Profile)


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate on the traffic at a multiple of its rate."""

    candidate: Candidate
    times: float
    traffic: Traffic
    profile: Profile
    objectives: Sequence[Objective]
    slo: SLO


class BadPlans(RuntimeError):
    """A strategy made plans that were refused: `fcfs` planned in its place, so that the run is
    not the strategy's."""


def run(trial: Trial) -> list[Score]:
    """Simulate it; a score for each objective. Raises Stalled or BadPlans."""
    profile = trial.candidate.machine(trial.profile)
    load = trial.traffic.load(trial.times, profile)
    done = simulate(load, profile, trial.candidate.choice)
    if done.faults:
        raise BadPlans(f"{trial.candidate.label}: {done.faults[0]}")
    return [objective.score(done.records, trial.slo) for objective in trial.objectives]
