"""What became of each promise."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from schedulers.interface import Promise


@dataclass(frozen=True, slots=True)
class Verdict:
    """`held` None: it was not asked, or not to the end, for the reason in `why`; that of a
    broken promise is what broke it, `script` the smallest case found and `story` the last
    plans of it."""

    promise: Promise
    held: bool | None
    tried: int = 0
    why: str = ""
    script: tuple[str, ...] = ()
    story: tuple[str, ...] = ()

    @property
    def asked(self) -> bool:
        """Whether any case of it was tried."""
        return self.tried > 0


@dataclass(frozen=True, slots=True)
class PlanCost:
    """Time of `plan` alone, in seconds. `running`: requests that ran, on average."""

    situation: str
    running: float
    plans: int
    median_s: float
    p99_s: float
    first_s: float


@dataclass(slots=True)
class Report:
    """All of one strategy. `not_timed` says why there are no `costs`, where a plan failed
    while it was timed."""

    name: str
    options: dict[str, Any]
    verdicts: list[Verdict] = field(default_factory=list)
    costs: list[PlanCost] = field(default_factory=list)
    not_timed: str = ""

    @property
    def broken(self) -> list[Verdict]:
        """What did not hold."""
        return [verdict for verdict in self.verdicts if verdict.held is False]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "scheduler": self.name,
            "options": self.options,
            "held": not self.broken,
            "promises": list(map(_promise, self.verdicts)),
            "plan_cost": list(map(_cost, self.costs)),
            "not_timed": self.not_timed,
        }


def _promise(verdict: Verdict) -> dict[str, Any]:
    return {
        "promise": verdict.promise.value,
        "asked": verdict.asked,
        "held": verdict.held,
        "examples": verdict.tried,
        "why": verdict.why,
        "script": list(verdict.script),
        "story": list(verdict.story),
    }


def _cost(cost: PlanCost) -> dict[str, Any]:
    return {
        "situation": cost.situation,
        "running": cost.running,
        "plans": cost.plans,
        "median_s": cost.median_s,
        "p99_s": cost.p99_s,
        "first_s": cost.first_s,
    }


def in_order(verdicts: dict[Promise, Verdict]) -> Iterator[Verdict]:
    """As the interface lists promises."""
    return (verdicts[promise] for promise in Promise)
