"""What planning a step costs: `python -m bench.planning [NAME...]`.

The real core and allocator under a crowd that stays as large as it is: requests end and come
in every step, answered by a runner that computes nothing. Times are processor time of the
planning thread, so that others on the machine do not count into them. Exit status 1 when a
median is over its limit: a millisecond for the plan, another for all that is beside it.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import msgspec
from rich.console import Console
from rich.table import Table

from bench.crowd import PAGE_SIZE, Arrivals, Crowd, Instant
from bench.samples import percentile
from memory.host import HostPages
from memory.pages import PageAllocator
from schedulers.interface import ALWAYS, Plan, Promise, Scheduler, Snapshot, StepCosts
from schedulers.registry import BUILT_IN
from service.core import Core, StepLimits
from service.planner import Planner
from service.residency import Residency
from service.strategy import make_scheduler

STEP_S = 0.05
COSTS = StepCosts(token_s=2e-4, row_s=1e-4, page_s=2e-4)
PLAN_LIMIT_S = BESIDE_LIMIT_S = 1e-3


@dataclass(frozen=True, slots=True)
class PlanningCost:
    """Seconds a step. `plan` is the strategy alone, `beside` the snapshot, the check and
    carrying the plan out; `first_plan_s` is the median first plan after an exchange.
    `running` and `evicted` are means a step: what the crowd really was."""

    scheduler: str
    pages: str
    plan_median_s: float
    plan_p99_s: float
    first_plan_s: float
    beside_median_s: float
    beside_p99_s: float
    running: float
    waiting: int
    evicted: float


class Timed:
    """A strategy, and how long its plans took."""

    Options: ClassVar[type[Any]] = object
    promises: ClassVar[frozenset[Promise]] = ALWAYS

    def __init__(self, inner: Scheduler, clock: Callable[[], float]) -> None:
        self.took_s: list[float] = []
        self.evicted = 0
        self._inner = inner
        self._clock = clock

    def plan(self, snap: Snapshot) -> Plan:
        began_s = self._clock()
        plan = self._inner.plan(snap)
        self.took_s.append(self._clock() - began_s)
        self.evicted += len(plan.evict)
        return plan


def measure(
    name: str,
    options: Mapping[str, Any] | None = None,
    crowd: Crowd | None = None,
    clock: Callable[[], float] = time.thread_time,
) -> PlanningCost:
    """Planning cost of the strategy `name` with `options`. Raises what
    `service.strategy.make_scheduler` raises, and as `cost_of` does."""
    chosen = dict(options or {})
    return cost_of(name, lambda: make_scheduler(name, chosen), crowd or Crowd(), clock)


def cost_of(
    title: str,
    make: Callable[[], Scheduler],
    crowd: Crowd,
    clock: Callable[[], float] = time.thread_time,
) -> PlanningCost:
    """Planning cost of what `make` makes. Raises BrokenScheduler for an illegal plan and
    whatever a plan raises."""
    return _Measurement(title, make, crowd, clock).run()


class _Measurement:
    def __init__(
        self,
        title: str,
        make: Callable[[], Scheduler],
        crowd: Crowd,
        clock: Callable[[], float],
    ) -> None:
        self._title, self._make = title, make
        self._crowd = crowd
        self._clock = clock
        self._arrivals = Arrivals()
        self._now_s = 0.0
        self._runner = Instant()
        first = Timed(make(), clock)
        self._planner = Planner(
            title, first, _ignore, clock=lambda: 0.0, strict=lambda name: True
        )
        pages = PageAllocator(crowd.pages)
        residency = Residency(pages, HostPages(crowd.pages), PAGE_SIZE)
        self._core = Core(residency, self._planner, StepLimits(crowd.running, 1024, 2))
        self._core.costs = COSTS

    def run(self) -> PlanningCost:
        crowd = self._crowd
        for _ in range(crowd.warm_up_steps):
            self._step()
        first_s = median(self._first_plan_s() for _ in range(crowd.exchanges))
        timed = self._exchange()
        self._step()
        timed.took_s.clear()
        timed.evicted, running = 0, 0
        beside_s = []
        gc.collect()
        for _ in range(crowd.steps):
            beside_s.append(self._step() - timed.took_s[-1])
            running += len(self._core.running)
        return PlanningCost(
            scheduler=self._title,
            pages="tight" if crowd.tight else "ample",
            plan_median_s=median(timed.took_s),
            plan_p99_s=percentile(timed.took_s, 99),
            first_plan_s=first_s,
            beside_median_s=median(beside_s),
            beside_p99_s=percentile(beside_s, 99),
            running=running / crowd.steps,
            waiting=crowd.waiting,
            evicted=timed.evicted / crowd.steps,
        )

    def _exchange(self) -> Timed:
        timed = Timed(self._make(), self._clock)
        self._planner.exchange(self._title, timed)
        return timed

    def _first_plan_s(self) -> float:
        timed = self._exchange()
        self._step()
        return timed.took_s[0]

    def _step(self) -> float:
        """One step, with the queue filled up before; what deciding it took."""
        core = self._core
        while len(core.waiting) < self._crowd.waiting:
            core.submit(self._arrivals.next(self._now_s))
        began_s = self._clock()
        step = core.begin(self._now_s)
        took_s = self._clock() - began_s
        self._now_s += STEP_S
        if step is not None:
            core.finish(step, self._runner.step(step.batch), self._now_s)
        core.take_events()
        return took_s


def _ignore(event: str, **why: str) -> None:
    """Nobody reads it: a strict planner raises."""


def table(costs: Sequence[PlanningCost]) -> Table:
    """Milliseconds, a line for each strategy and pool."""
    found = Table(title="planning cost, ms a step")
    for heading in ("scheduler", "pages", "plan median", "p99", "first", "beside median"):
        found.add_column(heading)
    for heading in ("p99", "running", "waiting", "evicted a step"):
        found.add_column(heading)
    for cost in costs:
        found.add_row(
            cost.scheduler,
            cost.pages,
            _judged(cost.plan_median_s, PLAN_LIMIT_S),
            f"{1000 * cost.plan_p99_s:.2f}",
            f"{1000 * cost.first_plan_s:.2f}",
            _judged(cost.beside_median_s, BESIDE_LIMIT_S),
            f"{1000 * cost.beside_p99_s:.2f}",
            f"{cost.running:.0f}",
            f"{cost.waiting}",
            f"{cost.evicted:.2f}",
        )
    return found


def _judged(seconds: float, limit_s: float) -> str:
    return f"{1000 * seconds:.2f}" + ("" if seconds < limit_s else " (over)")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="*", help="default: all built-in strategies")
    parser.add_argument("--running", type=int, default=256)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path("bench/out/planning.json"))
    options = parser.parse_args()
    crowd = Crowd(options.running, options.waiting, steps=options.steps)
    costs = [
        measure(name, None, replace(crowd, tight=tight))
        for name in options.name or BUILT_IN
        for tight in (False, True)
    ]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.encode([asdict(cost) for cost in costs])
    options.out.write_bytes(msgspec.json.format(encoded, indent=1))
    Console(width=120).print(table(costs))
    return 0 if all(map(_within_limits, costs)) else 1


def _within_limits(cost: PlanningCost) -> bool:
    return cost.plan_median_s < PLAN_LIMIT_S and cost.beside_median_s < BESIDE_LIMIT_S


if __name__ == "__main__":
    sys.exit(main())
