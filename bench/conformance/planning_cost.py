"""Times `plan` alone, on live views, where it matters: a full step and a long queue."""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import ClassVar

from bench.conformance.drive import Drive, Tempo
from bench.conformance.loads import Caller, Machine
from bench.conformance.verdict import PlanCost
from bench.conformance.witness import WitnessOptions
from schedulers.fcfs import FCFS, FCFSOptions
from schedulers.interface import ALWAYS, Plan, Promise, Scheduler, Snapshot

RUNNING, WAITING, PLANS = 256, 10_000, 200
PAGE_SIZE = 16
PROMPT_TOKENS, MAX_TOKENS = (32, 96), (16, 80)
AMPLE_PAGES, TIGHT_PAGES = 11, 5  # for each that runs: of the largest, under the average
PREFILL_TOKENS = 2048  # of a step's budget
FILL_STEPS = 12
_DEADLINE_MS = 10_000_000


class Stopwatch:
    """Asks `inner` and keeps how long each answer took, in seconds."""

    Options: ClassVar[type[WitnessOptions]] = WitnessOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS

    def __init__(self, inner: Scheduler) -> None:
        self.inner = inner
        self.seconds: list[float] = []

    def plan(self, snap: Snapshot) -> Plan:
        begun_s = time.perf_counter()
        plan = self.inner.plan(snap)
        self.seconds.append(time.perf_counter() - begun_s)
        return plan


def plan_costs(make: Callable[[], Scheduler], seed: int, plans: int = PLANS) -> list[PlanCost]:
    """With pages for all who run to go on, and with so few that some must give way. The
    strategy is exchanged in; its first plan, which reads the whole queue, is told apart."""
    return [
        _measured("pages ample", make, RUNNING * AMPLE_PAGES, seed, plans),
        _measured("pages tight", make, RUNNING * TIGHT_PAGES, seed, plans),
    ]


def _measured(
    situation: str, make: Callable[[], Scheduler], pages: int, seed: int, plans: int
) -> PlanCost:
    machine = Machine(pages, PAGE_SIZE, pages, RUNNING, RUNNING + PREFILL_TOKENS)
    watch = Stopwatch(FCFS(FCFSOptions()))
    drive = Drive(machine, watch, Tempo(), None)
    callers = _Callers(seed)
    for _ in range(FILL_STEPS):
        _top_up(drive, callers)
        drive.step()
    watch.inner, watch.seconds = make(), []
    drive.core.planner.forget()
    running = 0
    for _ in range(plans + 1):
        _top_up(drive, callers)
        running += len(drive.core.running)
        drive.step()
    first_s, *rest = watch.seconds
    return PlanCost(
        situation=situation,
        running=running / (plans + 1),
        plans=len(rest),
        median_s=statistics.median(rest),
        p99_s=statistics.quantiles(rest, n=100)[-1],
        first_s=first_s,
    )


def _top_up(drive: Drive, callers: "_Callers") -> None:
    for _ in range(WAITING - len(drive.core.waiting)):
        drive.submit(len(drive.requests) + 1, callers.next())


class _Callers:
    """All kinds mixed, so that every strategy has something to sort by."""

    def __init__(self, seed: int) -> None:
        self._dice = Random(seed)

    def next(self) -> Caller:
        dice = self._dice
        caller = Caller(dice.randint(*PROMPT_TOKENS), dice.randint(*MAX_TOKENS))
        deadline_ms = dice.choice([None, _DEADLINE_MS + dice.randint(0, 1_000_000)])
        return replace(
            caller,
            priority=dice.randint(0, 15),
            tenant=f"tenant {dice.randint(1, 20)}",
            deadline_ms=deadline_ms,
            first_token_ms=deadline_ms,
        )
