"""Asks the strategy for a plan, holds the plan to the rules, and stands in for a bad one.

A bad plug-in costs speed, never the service: an illegal or raising plan is replaced by
FCFS for that step, and three bad plans in a row (a late one counts) put FCFS in the
strategy's place until the next exchange. A late plan of a built-in strategy is told and
changes nothing: the machine stood still.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from traceback import format_exception_only
from typing import Any, Protocol

from schedulers.check import violations
from schedulers.fcfs import FCFS, FCFSOptions
from schedulers.interface import Plan, RequestId, Scheduler, Snapshot
from schedulers.registry import BUILT_IN

STRIKES = 3


class Report(Protocol):
    """Where the planner says what a strategy did wrong."""

    def __call__(self, event: str, *, scheduler: str, fault: str) -> object: ...


class Flag(Protocol):
    """Up while a strategy plans, so that whoever restarts an engine that died or hangs knows
    whose fault it was."""

    value: bool


@dataclass(slots=True)
class OwnFlag:
    """One that nobody else sees."""

    value: bool = False


class BrokenScheduler(AssertionError):
    """Raised instead of standing in, where the planner is strict."""


class Planner:
    """Keeps what a strategy is owed between its plans (`arrived`, `left`, `rebuild`).

    `faults` since somebody last took them, `all_faults` since the start. `options` are told,
    never used. `replaces` names the strategy that FCFS stands in for, when it does; `flag`
    and it are set anew by whoever restarts an engine. `strict`: whether a fault of the
    strategy of that name raises, since nobody is to stand in for it.
    """

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        report: Report,
        clock: Callable[[], float],
        late_s: float = 0.1,
        strict: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self.faults = 0
        self.all_faults = 0
        self.options: Mapping[str, Any] = {}
        self.replaces = ""
        self.flag: Flag = OwnFlag()
        self.name = name
        self._scheduler = scheduler
        self._report = report
        self._clock = clock
        self._late_s = late_s
        self._strict = strict
        self._fallback = FCFS(FCFSOptions())
        self._strikes = 0
        self._of_this = 0  # faults of the strategy in place
        self.forget()

    def exchange(
        self, name: str, scheduler: Scheduler, options: Mapping[str, Any] | None = None
    ) -> None:
        """Use another strategy from the next step on."""
        self.name, self._scheduler, self.options = name, scheduler, options or {}
        self.replaces = ""
        self._strikes = self._of_this = 0
        self.forget()

    def forget(self) -> None:
        """The next snapshot tells the strategy to read everything anew."""
        self.rebuild = True
        self.arrived: list[RequestId] = []
        self.left: list[RequestId] = []

    def plan(self, snap: Snapshot) -> Plan:
        """A legal plan for the step."""
        begun_s = self._clock()
        plan, faults = self._ask(snap)
        if faults and self._strict(self.name):
            raise BrokenScheduler(f"{self.name}: {'; '.join(faults)}")
        late_s = self._clock() - begun_s
        if plan is not None and not faults:
            self.rebuild, self.arrived, self.left = False, [], []
        else:
            self.forget()
            plan = self._fallback.plan(replace(snap, rebuild=True))
        if faults:
            self._fault(faults)
            self._strike()
        elif late_s > self._late_s:
            self._fault([f"a plan took {late_s:.3f} s, over {self._late_s} s"])
            if self.name not in BUILT_IN:
                self._strike()
        else:
            self._strikes = 0
        return plan

    def _ask(self, snap: Snapshot) -> tuple[Plan | None, list[str]]:
        self.flag.value = self._scheduler is not self._fallback
        try:
            plan = self._scheduler.plan(snap)
            return plan, violations(snap, plan)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plug-in's may derive from that alone
            if self._strict(self.name):
                raise
            return None, [f"raised {''.join(format_exception_only(error)).strip()}"]
        finally:
            self.flag.value = False

    def _fault(self, faults: list[str]) -> None:
        self.faults += 1
        self.all_faults += 1
        self._of_this += 1
        if self._of_this <= STRIKES or self._of_this.bit_count() == 1:  # ever more seldom
            fault = f"{'; '.join(faults[:3])} (fault {self._of_this})"
            self._report("scheduler fault", scheduler=self.name, fault=fault)

    def _strike(self) -> None:
        self._strikes += 1
        if self._strikes == STRIKES and self._scheduler is not self._fallback:
            self._report("scheduler replaced", scheduler=self.name, fault="fcfs takes over")
            replaced = self.name
            self.exchange("fcfs", self._fallback, asdict(self._fallback.options))
            self.replaces = replaced
