"""Builders of small cores over the toy model, checked after every change."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from memory.host import HostPages
from memory.pages import PageAllocator
from models.batch import Runner, Sampling, StepBatch, StepResult
from models.toy import EOS, ToyRunner
from schedulers.fcfs import FCFS, FCFSOptions
from schedulers.interface import Plan, Scheduler, Snapshot
from service.core import Core, StepLimits
from service.invariants import check_core
from service.messages import Finish, Limits, Receipt, RequestEvent, StepStats, Submit
from service.outbox import merge_stats
from service.planner import Planner
from service.residency import Residency


def make_core(
    pages: int = 6,
    page_size: int = 2,
    host: int = 0,
    rows: int = 4,
    budget: int = 8,
    watermark: int = 0,
    scheduler: Scheduler | None = None,
    strict: bool = True,
    prefix_cache: bool = True,
    audit: Callable[[Core], None] | None = check_core,
    report: Callable[..., object] = lambda event, **why: None,
    steps_in_flight: int = 1,
) -> Core:
    """`pages` counts those that requests can have (the scratch page comes on top)."""
    residency = Residency(PageAllocator(pages + 1, prefix_cache), HostPages(host), page_size)
    planner = Planner(
        "under test",
        scheduler or FCFS(FCFSOptions()),
        report,
        clock=lambda: 0.0,
        strict=lambda name: strict,
    )
    limits = StepLimits(rows, budget, watermark)
    return Core(residency, planner, limits, audit, steps_in_flight=steps_in_flight)


def make_submit(
    id: int,
    prompt: Sequence[int] = (1, 2, 3),
    max_tokens: int = 4,
    stop_ids: Sequence[int] = (),
    limits: Limits | None = None,
    **other: object,
) -> Submit:
    """A greedy request that goes on past the end of sequence and arrives at second `id`."""
    sampling = other.pop("sampling", Sampling(stop_ids=tuple(stop_ids)))
    arrival_s = other.pop("arrival_s", float(id))
    return Submit(
        id=id,
        prompt=list(prompt),
        sampling=sampling,
        limits=limits or Limits(max_tokens),
        arrival_s=arrival_s,
        **other,
    )


def make_toy(core: Core) -> ToyRunner:
    """A toy model with just the core's pools."""
    residency = core.residency
    return ToyRunner(residency.pages.num_pages, residency.page_size, residency.host.num_pages)


@dataclass
class Answers:
    """What a core said about its requests, by id."""

    tokens: dict[int, list[int]] = field(default_factory=dict)
    finish: dict[int, Finish] = field(default_factory=dict)
    last: dict[int, RequestEvent] = field(default_factory=dict)
    stats: StepStats = field(default_factory=StepStats)  # counters of all that was taken

    def take(self, core: Core) -> None:
        """Collect news; nothing may follow a request's end."""
        events, stats = core.take_events()
        self.stats = merge_stats(self.stats, stats)
        for event in events:
            assert event.id not in self.finish, f"news of {event.id} after its end"
            self.tokens.setdefault(event.id, []).extend(event.tokens)
            if event.finish is not None:
                self.finish[event.id] = event.finish
                self.last[event.id] = event

    def receipt(self, id: int) -> Receipt:
        """What was done to a request that has ended."""
        receipt = self.last[id].receipt
        assert receipt is not None
        return receipt


def run(core: Core, runner: Runner, now_s: float = 0.0, steps: int = 1000) -> Answers:
    """Drive the core until nobody is left."""
    answers = Answers()
    for _ in range(steps):
        answers.take(core)
        if not core.has_work:
            return answers
        step_once(core, runner, now_s)
    raise AssertionError(f"{len(core.requests)} requests left after {steps} steps")


def step_once(core: Core, runner: Runner, now_s: float = 0.0) -> StepBatch | None:
    """One step; what was computed in it."""
    step = core.begin(now_s)
    if step is None:
        return None
    core.finish(step, runner.step(step.batch), now_s)
    return step.batch


def solo(submit: Submit, page_size: int = 2) -> list[int]:
    """The request's answer when it is alone."""
    most = len(submit.prompt) + submit.limits.max_tokens
    core = make_core(pages=most, page_size=page_size, budget=most)
    core.submit(submit)
    return run(core, make_toy(core)).tokens.get(submit.id, [])


class Scripted(FCFS):
    """Plans that are written down, then FCFS. `rebuilds`: what each snapshot said of that."""

    def __init__(self, *plans: Plan) -> None:
        super().__init__(FCFSOptions())
        self._plans = list(plans)
        self.rebuilds: list[bool] = []

    def plan(self, snap: Snapshot) -> Plan:
        self.rebuilds.append(snap.rebuild)
        return self._plans.pop(0) if self._plans else super().plan(snap)


class RaisingRunner:
    """Raises in the steps whose numbers are named, else runs `inner`."""

    def __init__(self, inner: Runner, raising: Sequence[int]) -> None:
        self._inner = inner
        self._raising = set(raising)
        self._count = 0

    def step(self, batch: StepBatch) -> StepResult:
        self._count += 1
        if self._count in self._raising:
            raise RuntimeError("step failed")
        return self._inner.step(batch)


__all__ = [
    "EOS",
    "Answers",
    "RaisingRunner",
    "Scripted",
    "make_core",
    "make_submit",
    "make_toy",
    "run",
    "solo",
    "step_once",
]
