"""Drives a real core and allocator with the toy model on a virtual clock."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.conformance.loads import MS, OWN_PROMPT, Caller, Machine
from memory.host import HostPages
from memory.pages import PageAllocator
from models.batch import Sampling, StepBatch
from models.toy import ToyRunner
from schedulers.interface import RequestId, Scheduler, StepCosts
from service.core import Core, StepLimits
from service.messages import Finish, Limits, Submit
from service.planner import Planner
from service.request import Request
from service.residency import Residency

Audit = Callable[[Core], None]


@dataclass(frozen=True, slots=True)
class Tempo:
    """What a step takes, in seconds, and what the strategy is told that it takes."""

    step_s: float = 0.002
    token_s: float = 0.001
    page_s: float = 0.0005

    @property
    def costs(self) -> StepCosts:
        """As the service measures them."""
        return StepCosts(self.token_s, self.token_s, self.page_s, self.step_s)

    def of(self, batch: StepBatch) -> float:
        """Seconds of one step."""
        tokens = sum(len(row.tokens) for row in batch.rows)
        copies = len(batch.swap_out) + len(batch.swap_in)
        return self.step_s + self.token_s * tokens + self.page_s * copies


class Drive:
    """One run. `requests` are all that ever came, also those that ended."""

    def __init__(
        self, machine: Machine, scheduler: Scheduler, tempo: Tempo, audit: Audit | None
    ) -> None:
        self.core = make_core(machine, scheduler, audit)
        self.core.costs = tempo.costs
        self.requests: dict[int, Request] = {}
        self.now_s = 0.0
        self.steps = 0
        self._tempo = tempo
        self._toy = ToyRunner(machine.pages + 1, machine.page_size, machine.host_pages)

    def submit(self, id: int, caller: Caller) -> Request:
        """A request comes in now."""
        self.core.submit(_submit(id, caller, self.now_s))
        request = self.requests[id] = self.core.requests[RequestId(id)]
        return request

    def leave(self, id: int) -> None:
        """Its client hangs up."""
        self.core.end(id, Finish.CANCELLED, self.now_s)

    def step(self, failing: bool = False) -> None:
        """One step; what it decides and computes takes its time."""
        self.steps += 1
        step = self.core.begin(self.now_s)
        if step is None:  # everybody was refused or expired, or it is a matter of time
            self.now_s += self._tempo.step_s
            return
        result = self._toy.step(step.batch)
        self.now_s += self._tempo.of(step.batch)
        if failing:
            self.core.fail(step, "failed on purpose", self.now_s)
        else:
            self.core.finish(step, result, self.now_s)
        self.core.take_events()


def make_core(machine: Machine, scheduler: Scheduler, audit: Audit | None) -> Core:
    """A core of the machine's size; with `audit`, strategies see frozen copies."""
    residency = Residency(
        PageAllocator(machine.pages + 1), HostPages(machine.host_pages), machine.page_size
    )
    planner = Planner("under test", scheduler, _report, lambda: 0.0, strict=lambda name: True)
    limits = StepLimits(machine.rows, machine.budget, machine.watermark)
    return Core(residency, planner, limits, audit)


def unaudited(core: Core) -> None:
    """Strategies see frozen copies, and nothing else is checked."""


def _report(event: str, *, scheduler: str, fault: str) -> None:
    raise AssertionError(f"{scheduler}: {event}: {fault}")  # a strict planner reports nothing


def _submit(id: int, caller: Caller, now_s: float) -> Submit:
    token = 1000 + id if caller.prompt == OWN_PROMPT else caller.prompt
    deadline_s = _after(now_s, caller.deadline_ms)
    return Submit(
        id=id,
        prompt=[token] * caller.prompt_tokens,
        sampling=Sampling(),
        limits=Limits(caller.max_tokens, expire_by_s=deadline_s),
        arrival_s=now_s,
        priority=caller.priority,
        tenant=caller.tenant,
        deadline_s=deadline_s,
        first_token_deadline_s=_after(now_s, caller.first_token_ms),
    )


def _after(now_s: float, wait_ms: int | None) -> float | None:
    return None if wait_ms is None else now_s + wait_ms * MS
