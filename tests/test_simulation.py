"""The simulator: clock, traces, keys, rules, figures."""

from typing import ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.simulation.choice import Choice
from bench.simulation.costs import StepModel, Work
from bench.simulation.demand import Demand, Load, Rules
from bench.simulation.engine import scaled, simulate
from bench.simulation.figures import SLO, figures
from bench.simulation.gantt import bars
from bench.trace import Arrival
from schedulers.fcfs import FCFS, FCFSOptions
from schedulers.interface import ALWAYS, Plan, Snapshot, StepCosts
from schedulers.registry import BUILT_IN
from service.costs import CostMeter
from service.messages import Finish, StepStats
from tests.cores import make_core, make_submit, make_toy
from tests.simulations import (
    COSTS,
    dressed,
    make_load,
    make_profile,
    run_checked,
    times,
)

CHOICES = [*map(Choice, BUILT_IN, BUILT_IN), Choice("s", "fcfs", {"eviction": "swap"})]


def test_a_lone_request_takes_the_sum_of_its_steps() -> None:
    # Prefill of 4: 1 + 4/4 + (1+2+3+4)/1024; then decode rows with 5 and 6 tokens of context.
    run = run_checked(make_load((0.5, 4, 3)), make_profile())
    prefill_s = 1 + 1 + 10 / 1024
    decodes_s = (1.125 + 5 / 64) + (1.125 + 6 / 64)
    assert times(run.records[0]) == (0.5 + prefill_s, 0.5 + prefill_s + decodes_s)
    assert run.records[0].ttft_s == prefill_s
    assert run.records[0].tpot_s == decodes_s / 2
    assert run.totals.busy_s == prefill_s + decodes_s
    assert run.ended_s == 0.5 + prefill_s + decodes_s


def test_a_chunk_attends_to_the_chunks_before() -> None:
    # 12 tokens, 8 a step: the second chunk's 4 tokens see 8 before and 1 to 4 of their own.
    run = run_checked(make_load((0, 12, 1)), make_profile())
    first_s = (1 + 8 / 4 + 36 / 1024) + (1 + 4 / 4 + (4 * 8 + 10) / 1024)
    assert times(run.records[0]) == (first_s, first_s)


def test_whoever_comes_during_a_step_joins_the_next_and_time_jumps_over_idleness() -> None:
    run = run_checked(make_load((0, 4, 2), (1, 4, 1), (100, 1, 1)), make_profile())
    first_s = 2 + 10 / 1024
    second_s = first_s + 1 + 0.125 + 5 / 64 + 1 + 10 / 1024  # a decode row and a prefill
    first, second, third = run.records
    assert times(first) == (first_s, second_s)
    assert times(second) == (second_s, second_s)
    assert second.queue_s == first_s - 1
    assert times(third) == (100 + 1.125 + 1 / 64,) * 2


def test_a_swapped_victim_takes_the_time_of_its_pages_and_is_computed_once() -> None:
    # 5 pages of 2: both get a first token, then the newer gives way for the older.
    load, choice = make_load((0, 4, 4), (0, 4, 4)), Choice("s", "fcfs", {"eviction": "swap"})
    run = run_checked(load, make_profile(pages=5, host=8), choice)
    assert [record.finish for record in run.records] == [Finish.LENGTH] * 2
    assert run.totals.evictions == {"swap pages": 1}
    assert run.totals.swapped_pages == 4  # two pages out, two in
    assert run.totals.recomputed_tokens == 0
    older, newer = run.records
    (pause,) = newer.pauses
    assert pause.mode == "swap" and pause.to_s is not None
    assert older.ended_s <= pause.to_s
    computed_s = sum(COSTS.seconds(work) for work in _solo_works(4, 4))
    assert run.totals.busy_s < 2 * computed_s + 4 * COSTS.page_s
    assert ("swap", pause.from_s, pause.to_s) in list(bars(newer))


def _solo_works(prompt: int, output: int) -> list[Work]:
    works = [Work(prefill_tokens=prompt, pairs=prompt * (prompt + 1) // 2)]
    return works + [Work(rows=1, context_tokens=prompt + n) for n in range(1, output)]


def test_an_idle_engine_gives_each_request_what_it_takes_alone() -> None:
    run = run_checked(make_load((0, 5, 7), (1000, 6, 9)), make_profile(max_step_tokens=64))
    for record, (prompt, output) in zip(run.records, ((5, 7), (6, 9)), strict=True):
        alone_s = sum(COSTS.seconds(work) for work in _solo_works(prompt, output))
        assert record.ended_s - record.at_s == pytest.approx(alone_s)
        assert COSTS.alone_s(prompt, output) == pytest.approx(alone_s, rel=0.02)


def test_weights_hide_arithmetic_until_it_takes_longer() -> None:
    model = StepModel(1.0, 0.5, 0.5, 0, 0, 0.25, weights_s=4.0)
    assert model.seconds(Work(prefill_tokens=2, rows=2)) == 5.0
    assert model.seconds(Work(prefill_tokens=12)) == 7.0
    assert model.seconds(Work(pages=2)) == 0.5


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.label)
def test_the_same_input_gives_the_same_output_and_everybody_ends(choice: Choice) -> None:
    rules = Rules([(0, 1), (8, 1)], [("a", 3), ("b", 1)], slack=6.0, seed=3)
    load = dressed([Arrival(i * 0.7, 3 + i % 9, 1 + i * 7 % 13) for i in range(30)], rules)
    profile = make_profile(pages=14, host=6)
    runs = [run_checked(load, profile, choice), simulate(load, profile, choice)]
    found = [msgspec.json.encode(figures(run, profile, SLO(2.0, 0.1))) for run in runs]
    assert found[0] == found[1]
    assert all(record.finish is not None for record in runs[0].records)
    assert not runs[0].faults
    last = runs[0].gauges[-1]
    assert (last.running, last.waiting, last.swapped, last.held_pages) == (0, 0, 0, 0)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=8),
    st.integers(9, 14),
    st.sampled_from(["recompute", "swap"]),
)
def test_counts_are_those_of_the_toy_engine(
    sizes: list[tuple[int, int]], pages: int, eviction: str
) -> None:
    """All there at once, so that time decides nothing."""
    choice = Choice("c", "fcfs", {"eviction": eviction})
    load = make_load(*((0, prompt, output) for prompt, output in sizes))
    run = simulate(load, make_profile(pages=pages, host=6), choice)
    core = make_core(
        pages=pages, host=6, scheduler=choice.make(), prefix_cache=False, rows=4, budget=8
    )
    toy, meter = make_toy(core), CostMeter()
    for id, (prompt, output) in enumerate(sizes, start=1):
        core.submit(make_submit(id, range(prompt), output))
    totals = StepStats()
    while core.has_work:
        step = core.begin(0.0)
        assert step is not None
        meter.observe(step.batch, 1.0, 0.5)
        core.costs = meter.costs
        core.finish(step, toy.step(step.batch), 0.0)
        stats = core.take_events()[1]
        for name in ("steps", "rows", "preemptions", "recomputed_tokens", "swapped_pages"):
            setattr(totals, name, getattr(totals, name) + getattr(stats, name))
    for name in ("steps", "rows", "preemptions", "recomputed_tokens", "swapped_pages"):
        assert getattr(run.totals, name) == getattr(totals, name), name


def test_clients_of_a_closed_loop_have_one_request_open_each() -> None:
    run = run_checked(
        make_load(*[(0.0, 3, 1 + i % 5) for i in range(12)], clients=3), make_profile()
    )
    for record in run.records:
        open_ = [r for r in run.records if r.at_s <= record.at_s < r.ended_s]
        assert len(open_) == min(3, 12 - run.records.index(record) + 2) or len(open_) == 3
    assert {record.at_s for record in run.records[:3]} == {0.0}
    ends = {record.ended_s for record in run.records}
    assert all(record.at_s in ends for record in run.records[3:])


def test_a_request_that_can_never_fit_is_refused_and_blocks_nobody() -> None:
    run = run_checked(make_load((0, 50, 1), (0, 4, 2), clients=1), make_profile(pages=6))
    assert [record.finish for record in run.records] == [Finish.FAILED, Finish.LENGTH]


class Told:
    """Notes what a strategy is told."""

    Options = FCFSOptions
    promises = ALWAYS
    max_tokens: ClassVar[list[int]] = []
    costs: ClassVar[list[StepCosts]] = []

    def __init__(self, options: FCFSOptions) -> None:
        self._fcfs = FCFS(options)
        self.max_tokens.clear()
        self.costs.clear()

    def plan(self, snap: Snapshot) -> Plan:
        self.max_tokens += [view.max_tokens for view in snap.running.values()]
        self.costs.append(snap.costs)
        return self._fcfs.plan(snap)


TOLD = Choice("told", f"{Told.__module__}:Told")


def test_a_length_that_is_not_told_ends_by_a_stop_token_at_the_same_time() -> None:
    """Pages of 2 for 5: the newer gives way and is computed again, up to its own length."""
    arrivals = [Arrival(0, 4, 4), Arrival(0, 4, 4)]
    runs = []
    for told in (True, False):
        demands = [Demand(arrival, told=told) for arrival in arrivals]
        runs.append(run_checked(Load("load", demands), make_profile(pages=5), TOLD))
        assert set(Told.max_tokens) == ({4} if told else {5 * 2 + 1 - 4})
    known, unknown = runs
    assert [record.finish for record in known.records] == [Finish.LENGTH] * 2
    assert [record.finish for record in unknown.records] == [Finish.STOP] * 2
    assert all(record.answered and record.tokens == 4 for record in unknown.records)
    assert known.totals == unknown.totals and known.totals.recomputed_tokens
    assert list(map(times, known.records)) == list(map(times, unknown.records))


def test_costs_that_are_told_wrong_leave_the_clock_as_it_was() -> None:
    load, profile = make_load((0, 4, 9)), make_profile()
    right = simulate(load, profile, TOLD)
    told = list(Told.costs)
    wrong = simulate(load, profile, TOLD, cost_error=-0.25)
    assert Told.costs == [scaled(costs, 0.75) for costs in told]
    assert all(costs.row_s and costs.step_s for costs in told)
    assert right.ended_s == wrong.ended_s


def test_a_caller_stays_when_first_token_and_pace_are_late() -> None:
    wishes = [(2.5, 0.5), (2.0, 1.0)]  # a first token after 2.01 s, then 1.2 s a token
    for first_s, pace in wishes:
        demand = Demand(
            Arrival(0, 4, 5), first_token_deadline_s=first_s, tokens_per_second=pace
        )
        record = run_checked(Load("load", [demand]), make_profile()).records[0]
        assert record.finish is Finish.LENGTH
        assert record.first_token_met == record.pace_met == (pace < 0.8)


def test_a_caller_leaves_at_its_deadline() -> None:
    load = Load("load", [Demand(Arrival(0, 4, 50), deadline_s=10.0)])
    record = run_checked(load, make_profile()).records[0]
    assert record.finish is Finish.EXPIRED and not record.answered
    assert 10.0 <= record.ended_s < 12.0
