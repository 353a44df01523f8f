"""Times `plan` where it matters: a full step and a long queue."""

from collections.abc import Callable
from typing import Any, ClassVar

from bench.conformance.patience import Overlong, patience
from bench.conformance.verdict import PlanCost
from bench.conformance.witness import PATIENCE_S
from bench.crowd import Crowd
from bench.planning import cost_of
from schedulers.interface import ALWAYS, Plan, Promise, Scheduler, Snapshot


class NotTimed(Exception):
    """A plan failed before such a crowd; one line for people."""


class Patient:
    """Asks `inner`, and does not wait for ever."""

    Options: ClassVar[type[Any]] = object
    promises: ClassVar[frozenset[Promise]] = ALWAYS

    def __init__(self, inner: Scheduler) -> None:
        self._inner = inner

    def plan(self, snap: Snapshot) -> Plan:
        with patience(PATIENCE_S):
            return self._inner.plan(snap)


def plan_costs(make: Callable[[], Scheduler], plans: int, warm_up: int = 250) -> list[PlanCost]:
    """With pages for all who run to go on, and with so few that some must give way. Raises
    NotTimed when a plan is illegal, raises, or does not return."""
    return [
        _cost(make, Crowd(tight=tight, steps=plans, warm_up_steps=warm_up))
        for tight in (False, True)
    ]


def _cost(make: Callable[[], Scheduler], crowd: Crowd) -> PlanCost:
    try:
        cost = cost_of("the strategy", lambda: Patient(make()), crowd)
    except (Exception, SystemExit, Overlong) as error:
        raise NotTimed(f"{type(error).__name__}: {error}") from error
    return PlanCost(
        situation=f"pages {cost.pages}",
        running=cost.running,
        plans=crowd.steps,
        median_s=cost.plan_median_s,
        p99_s=cost.plan_p99_s,
        first_s=cost.first_plan_s,
    )
