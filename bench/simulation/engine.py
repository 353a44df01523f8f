"""The real core on a virtual clock: steps take the time that a profile's costs say.

In one thread, in step with nothing: a run depends on its arguments alone. What it leaves out:
the front end with its limits on the queue, the channel, and the time the planning itself
takes, which on a real engine runs beside nothing.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields

from bench.simulation.arrivals import source
from bench.simulation.choice import Choice
from bench.simulation.costs import work_of
from bench.simulation.demand import Demand, Load
from bench.simulation.keys import BlockKeys
from bench.simulation.profile import Profile
from bench.simulation.record import Record
from bench.simulation.run import Gauges, Run, Totals, Waste
from memory.host import HostPages
from memory.pages import PageAllocator
from memory.prefix import Keys
from models.batch import RequestId, RowResult, Sampling, StepBatch, StepResult
from schedulers.interface import StepCosts
from service.core import Core, Step, StepLimits
from service.first_costs import Room, first_costs
from service.invariants import check_core
from service.messages import Limits, Submit
from service.planner import Planner
from service.residency import Residency

TOKEN, STOP = 0, 1
GREEDY, STOPPED = Sampling(), Sampling(stop_ids=(STOP,))
SAMPLED, LAST = RowResult(tokens=(TOKEN,)), RowResult(tokens=(STOP,))
CHUNK = RowResult()


class Stalled(RuntimeError):
    """Nothing was computed though requests were there, and nothing else will change that."""


def simulate(
    load: Load,
    profile: Profile,
    choice: Choice,
    progress: Callable[[int], object] = lambda ended: None,
    check: bool = False,
    cost_error: float = 0.0,
) -> Run:
    """Run a load to its end. `progress` hears how many requests have ended; `check` asserts
    every invariant after every change and raises on a bad plan. A strategy is told costs that
    are wrong by `cost_error`: 0.3 is 30 % too much. Raises Stalled."""
    simulation = Simulation(load, profile, choice, check, cost_error)
    with _no_collection():
        while simulation.step():
            progress(simulation.ended)
    return simulation.result()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the collector's passes: a run makes no cycles, and many objects."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Simulation:
    """A run as it goes on."""

    def __init__(
        self, load: Load, profile: Profile, choice: Choice, check: bool, cost_error: float
    ) -> None:
        self.ended = 0
        self._label = choice.label
        self._profile = profile
        self._costs = profile.costs
        self._source = source(load)
        self._records: dict[int, Record] = {}
        self._faults: list[str] = []
        self._totals, self._waste, self._gauges = Totals(), Waste(), Gauges()
        self._now_s = 0.0
        self._core = self._make_core(load, choice, check)
        self._meter = first_costs(self._seconds, _room(profile))
        self._told_costs = 1.0 + cost_error
        self._tell_costs()

    def _make_core(self, load: Load, choice: Choice, check: bool) -> Core:
        profile = self._profile
        residency = Residency(
            PageAllocator(profile.device_pages + 1, load.shares_prefixes),
            HostPages(profile.host_pages),
            profile.page_size,
        )
        planner = Planner(
            choice.name,
            choice.make(),
            self._report,
            clock=lambda: 0.0,
            strict=lambda name: check,
        )
        limits = StepLimits(
            profile.max_rows,
            profile.max_step_tokens,
            profile.watermark_pages,
            profile.target_gap_s,
        )
        return Core(residency, planner, limits, check_core if check else None, self._keys)

    def _report(self, event: str, *, scheduler: str, fault: str) -> None:
        self._faults.append(f"{event}: {fault}")

    def _keys(self, submit: Submit, page_size: int) -> Keys:
        blocks = self._records[submit.id].demand.arrival.blocks
        return BlockKeys(submit.id, len(submit.prompt), blocks, page_size)

    def step(self) -> bool:
        """One turn of the decode loop; False when all is done."""
        for at_s, demand in self._source.due(self._now_s, len(self._core.requests)):
            record = Record(len(self._records) + 1, demand, at_s)
            self._records[record.id] = record
            self._core.submit(_submit(record, self._profile))
        step = self._core.begin(self._now_s)
        if step is not None:
            self._compute(step)
        elif not self._wait():
            return False
        return True

    def _seconds(self, batch: StepBatch) -> float:
        return self._costs.seconds(work_of(batch))

    def _compute(self, step: Step) -> None:
        work = work_of(step.batch)
        seconds, copy_s = self._costs.seconds(work), work.pages * self._costs.page_s
        self._now_s += seconds
        self._totals.busy_s += seconds
        self._meter.observe(step.batch, seconds, copy_s)
        self._tell_costs()
        self._core.finish(step, self._result(step.batch, seconds, copy_s), self._now_s)
        self._hear(seconds)

    def _tell_costs(self) -> None:
        costs, times = self._meter.costs, self._told_costs
        self._core.costs = costs if times == 1.0 else scaled(costs, times)

    def _result(self, batch: StepBatch, seconds: float, copy_s: float) -> StepResult:
        rows: dict[RequestId, RowResult] = {}
        for row in batch.rows:
            if not row.samples:
                rows[row.request] = CHUNK
            else:
                answer = self._records[row.request].demand.arrival.output_tokens
                rows[row.request] = LAST if len(row.output) + 1 == answer else SAMPLED
        return StepResult(rows, model_s=seconds - copy_s, copy_s=copy_s)

    def _wait(self) -> bool:
        """Nothing to compute: let time pass until somebody comes; False when nobody does."""
        self._hear(0.0)
        if self._core.has_work:
            raise Stalled(f"{self._label}: requests are there, and nothing is computed")
        arrival_s = self._source.next_s(self._now_s)
        if arrival_s is None:
            return False
        self._now_s = arrival_s
        return True

    def _hear(self, seconds: float) -> None:
        events, stats = self._core.take_events()
        for event in events:
            self._records[event.id].hear(event, self._now_s)
            self.ended += event.finish is not None
        self._totals.add(stats)
        slots = stats.held_pages * self._profile.page_size
        self._waste.add(slots, stats.used_slots, seconds)
        self._gauges.add(self._now_s, stats, self._totals.preemptions)

    def result(self) -> Run:
        """What has come of it."""
        return Run(
            self._label,
            list(self._records.values()),
            self._gauges.kept,
            self._totals,
            self._waste,
            max((record.ended_s for record in self._records.values()), default=0.0),
            self._faults,
        )


def _room(profile: Profile) -> Room:
    return Room(
        profile.max_rows, profile.max_step_tokens, profile.context_tokens, profile.page_size
    )


def scaled(costs: StepCosts, times: float) -> StepCosts:
    """All of them wrong alike."""
    found = {field.name: times * getattr(costs, field.name) for field in fields(costs)}
    return StepCosts(**found)


def _submit(record: Record, profile: Profile) -> Submit:
    demand, arrival = record.demand, record.demand.arrival
    leaves_s = _after(record.at_s, demand.leaves_s)
    return Submit(
        id=record.id,
        prompt=[TOKEN] * arrival.prompt_tokens,
        sampling=GREEDY if demand.told else STOPPED,
        limits=Limits(_max_tokens(demand, profile), expire_by_s=leaves_s),
        arrival_s=record.at_s,
        priority=demand.priority,
        tenant=demand.tenant,
        deadline_s=_after(record.at_s, demand.deadline_s),
        first_token_deadline_s=_after(record.at_s, demand.first_token_deadline_s),
        tokens_per_second=demand.tokens_per_second,
    )


def _max_tokens(demand: Demand, profile: Profile) -> int:
    """Of an answer whose length is not told, what the service takes for a caller that names
    none."""
    prompt, answer = demand.arrival.prompt_tokens, demand.arrival.output_tokens
    if demand.told:
        return answer
    pool = profile.device_pages * profile.page_size
    return max(answer, min(profile.context_tokens, pool + 1) - prompt)


def _after(at_s: float, wait_s: float | None) -> float | None:
    return None if wait_s is None else at_s + wait_s
