"""The real core driving a runner, one or two steps in flight: no process, no channel."""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bench.gpu.room import PAGE_SIZE, Room
from memory.host import HostPages
from memory.pages import PageAllocator
from models.batch import AheadRunner, Landing, Sampling
from schedulers.interface import Scheduler
from service.core import Core
from service.invariants import check_core
from service.messages import Finish, Limits, RequestEvent, StepStats, Submit
from service.outbox import merge_stats
from service.planner import Planner
from service.residency import Residency
from service.step import Step, StepLimits

GREEDY = Sampling()


@dataclass(slots=True)
class Answers:
    """What came of a run: tokens by request, and where the time went (seconds)."""

    tokens: dict[int, list[int]] = field(default_factory=dict)
    stats: StepStats = field(default_factory=StepStats)  # counters of all steps
    wall_s: float = 0.0
    planning_s: float = 0.0
    starting_s: float = 0.0
    landing_s: float = 0.0


class BadPlan(RuntimeError):
    """A strategy answered with what it must not."""


def make_core(
    room: Room, scheduler: Scheduler, steps_in_flight: int = 1, check: bool = False
) -> Core:
    """A core without a prefix cache. `check`: all invariants after every change."""
    residency = Residency(
        PageAllocator(room.pages + 1, False), HostPages(room.host_pages), PAGE_SIZE
    )
    planner = Planner(
        "checked", scheduler, _report, time.perf_counter, 1e9, strict=lambda name: check
    )
    limits = StepLimits(room.rows, room.step_tokens)
    audit = check_core if check else None
    return Core(residency, planner, limits, audit, steps_in_flight=steps_in_flight)


def run(
    core: Core, runner: AheadRunner, prompts: Sequence[Sequence[int]], max_tokens: int
) -> Answers:
    """Put all prompts in at once and step until the last has ended. RuntimeError when one
    does not end with its last token."""
    answers = Answers()
    began_s = time.perf_counter()
    for id, prompt in enumerate(prompts):
        limits = Limits(max_tokens)
        core.submit(Submit(id, list(prompt), GREEDY, limits, arrival_s=float(id)))
    flying: deque[tuple[Step, Landing]] = deque()
    while core.has_work:
        step = _planned(core, answers)
        if step is not None:
            started_s = time.perf_counter()
            flying.append((step, runner.start(step.batch)))
            answers.starting_s += time.perf_counter() - started_s
        if not flying:
            raise RuntimeError(f"nothing to compute, and {len(core.requests)} requests left")
        if step is None or len(flying) == core.steps_in_flight:
            _land(core, *flying.popleft(), answers)
    while flying:  # what was computed for those who had ended
        _land(core, *flying.popleft(), answers)
    answers.wall_s = time.perf_counter() - began_s
    return answers


def _planned(core: Core, answers: Answers) -> Step | None:
    began_s = time.perf_counter()
    step = core.begin(time.monotonic())
    answers.planning_s += time.perf_counter() - began_s
    return step


def _land(core: Core, step: Step, landing: Landing, answers: Answers) -> None:
    began_s = time.perf_counter()
    result = landing()
    landed_s = time.perf_counter()
    answers.landing_s += landed_s - began_s
    core.finish(step, result, time.monotonic())
    events, stats = core.take_events()
    answers.stats = merge_stats(answers.stats, stats)
    _take(events, answers)
    answers.planning_s += time.perf_counter() - landed_s


def _take(events: Iterable[RequestEvent], answers: Answers) -> None:
    for event in events:
        answers.tokens.setdefault(event.id, []).extend(event.tokens)
        if event.finish not in (None, Finish.LENGTH):
            raise RuntimeError(f"request {event.id} ended with {event.finish}: {event.detail}")


def _report(event: str, *, scheduler: str, fault: str) -> object:
    raise BadPlan(f"{event}: {fault}")
