"""Measured step costs."""

from collections.abc import Iterable
from dataclasses import astuple, replace
from random import Random

import pytest

from models.batch import RequestId as BatchId
from models.batch import Row, Sampling, StepBatch
from schedulers.interface import StepCosts
from service.core import Core, StepLimits
from service.costs import CostMeter
from service.first_costs import LIMIT_S, Room, first_costs
from tests.cores import make_core, make_submit, make_toy

TRUE = StepCosts(token_s=0.002, row_s=0.003, page_s=0.5, step_s=0.04)


def step_of(*counts: int, swapped: int = 0, before: int = 0) -> StepBatch:
    """A step whose rows compute so many tokens each, behind `before` others."""
    rows = [
        Row(BatchId(i), [0] * n, before, [], False, Sampling(), [], [])
        for i, n in enumerate(counts)
    ]
    return StepBatch(rows, swap_out=[(1, 1)] * swapped)


def seconds_of(batch: StepBatch, true: StepCosts = TRUE) -> tuple[float, float]:
    """What a step takes, and how much of it its copies."""
    seconds, copy_s = true.step_s, len(batch.swap_out) * true.page_s
    for row in batch.rows:
        count = len(row.tokens)
        decodes = count == 1
        seconds += (
            true.decode_s(1, row.start + 1) if decodes else true.prefill_s(count, row.start)
        )
    return seconds + copy_s, copy_s


def measured(steps: Iterable[StepBatch]) -> StepCosts:
    meter = CostMeter()
    for step in steps:
        meter.observe(step, *seconds_of(step))
    return meter.costs


def test_steps_of_all_kinds_tell_their_costs_apart() -> None:
    dice = Random(1)
    kinds = [(5,), (300,), (1,), (1,) * 30, (1,) * 7 + (200,), (1, 60, 4)]
    costs = measured(step_of(*dice.choice(kinds)) for _ in range(300))
    assert costs.token_s == pytest.approx(TRUE.token_s, rel=0.02)
    assert costs.row_s == pytest.approx(TRUE.row_s, rel=0.02)
    assert costs.step_s == pytest.approx(TRUE.step_s, rel=0.02)


def test_a_chunk_far_on_tells_what_attending_costs() -> None:
    dice, true = Random(1), replace(TRUE, pair_s=1e-6)
    meter = CostMeter()
    for _ in range(300):
        step = step_of(dice.choice([1, 40, 300]), before=dice.choice([0, 500, 3000]))
        meter.observe(step, *seconds_of(step, true))
    assert meter.costs.pair_s == pytest.approx(1e-6, rel=0.02)
    assert meter.costs.token_s == pytest.approx(TRUE.token_s, rel=0.02)


def test_what_decode_rows_read_costs_what_it_takes() -> None:
    """Long contexts and many rows are two things, also once the steps are of one kind."""
    dice, true = Random(1), replace(TRUE, context_s=4e-6)
    meter = CostMeter()
    for _ in range(300):
        step = step_of(*[1] * dice.choice([1, 8, 30]), before=dice.choice([10, 900, 5000]))
        meter.observe(step, *seconds_of(step, true))
    assert meter.costs.context_s == pytest.approx(4e-6, rel=0.02)
    assert meter.costs.row_s == pytest.approx(TRUE.row_s, rel=0.05)
    for _ in range(400):
        step = step_of(*[1] * 20, before=2000)
        meter.observe(step, *seconds_of(step, true))
    assert meter.costs.context_s == pytest.approx(4e-6, rel=0.05)


def test_a_cost_that_would_be_negative_leaves_the_others_right() -> None:
    """Where more rows cost nothing, what the machine does between makes it look like less
    than nothing; the fixed cost is not to take that up."""
    meter = CostMeter()
    for _ in range(60):
        meter.observe(step_of(1), 1.1)
        meter.observe(step_of(*[1] * 9), 0.9)
    assert meter.costs.row_s == 0
    assert meter.costs.step_s == pytest.approx(1.0, rel=0.01)


def test_a_short_prompt_does_not_make_prefill_look_dear() -> None:
    """A prompt of five tokens takes 50 ms; one of 500 does not take 5 s."""
    costs = measured([step_of(5)] * 3)
    assert 0 < costs.step_s + 500 * costs.token_s < 0.5


def test_what_steps_do_not_tell_apart_is_right_together_and_stays_as_it_was() -> None:
    before = measured([step_of(300), step_of(40)] * 20)
    after = measured([step_of(300), step_of(40)] * 20 + [step_of(*[1] * 32)] * 400)
    assert after.token_s == pytest.approx(before.token_s, rel=0.1)
    whole_s, _ = seconds_of(step_of(*[1] * 32))
    assert after.step_s + 32 * after.row_s == pytest.approx(whole_s, rel=0.02)


def test_costs_follow_what_changes() -> None:
    meter = CostMeter()
    for seconds in [1.0] * 50 + [2.0] * 200:
        meter.observe(step_of(1), seconds)
    assert meter.costs.step_s + meter.costs.row_s == pytest.approx(2.0, rel=0.02)


def test_a_machine_that_stood_still_says_little_of_steps() -> None:
    """30 s in a step of 60 ms; else a strategy that goes by costs would refuse everybody."""
    meter, dice = CostMeter(), Random(1)
    kinds = [(300,), (1,) * 8, (1,) * 3 + (60,)]
    for _ in range(100):
        step = step_of(*dice.choice(kinds))
        meter.observe(step, *seconds_of(step))
    meter.observe(step_of(1, 1), 30.0)
    assert meter.costs.step_s < 0.2
    assert meter.costs.row_s < 0.2


def test_the_first_step_says_nothing_of_the_others() -> None:
    meter = CostMeter()
    meter.observe(step_of(20), 2.0)
    assert meter.costs == StepCosts()


def test_no_cost_is_below_zero() -> None:
    meter = CostMeter()
    for _ in range(20):
        meter.observe(step_of(100), 0.01)
        meter.observe(step_of(1), 1.0)
        assert min(meter.costs.token_s, meter.costs.row_s, meter.costs.step_s) >= 0


def test_copies_count_into_pages_and_into_nothing_else() -> None:
    dry = [step_of(300), step_of(1), step_of(1, 1)] * 10
    wet = [each for step in dry for each in (step, step_of(1, swapped=4))]
    expected = replace(measured(dry), page_s=TRUE.page_s)
    assert astuple(measured(wet)) == pytest.approx(astuple(expected), rel=1e-3)


def test_where_every_step_copies_its_costs_are_learnt_all_the_same() -> None:
    costs = measured([step_of(300, swapped=1), step_of(1, swapped=2)] * 20)
    assert costs.token_s == pytest.approx(TRUE.token_s, rel=0.1)
    assert costs.page_s == pytest.approx(TRUE.page_s)


def test_copies_that_outlast_their_step_are_told_with_the_next_that_copies() -> None:
    meter, late_s = CostMeter(), 0.0
    for pages in [40, 1, 2, 60, 3, 1, 30] * 3:
        meter.observe(step_of(1, swapped=pages), TRUE.step_s, late_s)
        late_s = pages * TRUE.page_s
    assert meter.costs.page_s == pytest.approx(TRUE.page_s, rel=0.2)


def test_copies_alone_say_nothing_of_rows() -> None:
    meter = CostMeter()
    meter.observe(step_of(swapped=3), 1.5, 1.5)
    assert meter.costs == StepCosts(page_s=0.5)


COSTS = StepCosts(token_s=0.001, row_s=0.004)


@pytest.mark.parametrize(
    ("running", "gap_s", "costs", "budget"),
    [
        (10, None, COSTS, 500),  # no target
        (10, 0.1, StepCosts(), 500),  # nothing is known
        (10, 0.1, StepCosts(step_s=0.004), 26),  # a prefill token seemed to cost nothing
        (10, 0.1, COSTS, 60),
        (10, 0.1, replace(COSTS, step_s=0.02), 40),
        (0, 0.1, COSTS, 100),
        (10, 0.05, COSTS, 26),  # a prefill always moves
        (50, 0.05, COSTS, 66),
        (10, 9.0, COSTS, 500),
    ],
)
def test_the_budget_is_what_the_gap_leaves(
    running: int, gap_s: float | None, costs: StepCosts, budget: int
) -> None:
    assert StepLimits(64, 500, gap_s=gap_s).budget(running, costs) == budget


@pytest.mark.parametrize("before", [0, 1, 3000])
@pytest.mark.parametrize("token_s", [0.0, 0.001])
@pytest.mark.parametrize("pair_s", [0.0, 1e-6])
def test_as_many_tokens_are_afforded_as_the_time_allows(
    before: int, token_s: float, pair_s: float
) -> None:
    costs = StepCosts(token_s=token_s, pair_s=pair_s)
    tokens = costs.prefill_tokens(0.25, before)
    if token_s or pair_s:
        assert costs.prefill_s(tokens, before) <= 0.25 + 1e-9
        assert costs.prefill_s(tokens + 1, before) > 0.25
    else:
        assert tokens == 0


def test_a_chunk_that_is_further_on_is_smaller() -> None:
    costs = StepCosts(token_s=0.001, pair_s=1e-6)
    limits = StepLimits(64, 500, gap_s=0.1)
    assert [limits.budget(0, costs, before) for before in (0, 1000, 9000)] == [95, 49, 16]


def test_long_contexts_leave_less_of_the_gap_to_prefills() -> None:
    costs = StepCosts(token_s=0.001, row_s=0.001, context_s=1e-5)
    limits = StepLimits(64, 500, gap_s=0.1)
    assert [limits.budget(10, costs, 0, context) for context in (0, 2000, 90_000)] == [
        90,
        70,
        26,
    ]


def simulated_steps(core: Core, meter: CostMeter, costs: StepCosts) -> list[tuple[bool, float]]:
    """For each step whether somebody decoded in it, and how long it took; long prompts keep
    coming."""
    toy, took = make_toy(core), []
    core.submit(make_submit(0, prompt=[1], max_tokens=150))
    for number in range(1, 150):
        if number % 20 == 3:
            core.submit(make_submit(number, prompt=range(300), max_tokens=30))
        begun = core.begin(0.0)
        assert begun is not None
        counts = [len(row.tokens) for row in begun.batch.rows]
        decodes = counts.count(1)
        seconds, _ = seconds_of(begun.batch, costs)
        meter.observe(begun.batch, seconds)
        core.costs = meter.costs
        core.finish(begun, toy.step(begun.batch), 0.0)
        took.append((decodes > 0, seconds))
    return took


def gap_core(gap_s: float | None) -> Core:
    core = make_core(pages=4000, budget=200, rows=20, audit=None)
    core._limits = StepLimits(20, 200, gap_s=gap_s)
    return core


def test_with_a_target_no_gap_between_two_tokens_is_longer() -> None:
    """Once a prefill was measured, whatever the prompts and however many decode."""
    costs = StepCosts(token_s=0.002, row_s=0.003, step_s=0.01)
    free = simulated_steps(gap_core(None), CostMeter(), costs)
    bound = simulated_steps(gap_core(0.12), CostMeter(), costs)
    measured = next(n for n, (_, seconds) in enumerate(bound) if seconds > 0.12)
    gaps = [seconds for decoded, seconds in bound[measured + 1 :] if decoded]
    assert max(seconds for _, seconds in free) > 0.3
    assert 0.08 < max(gaps) <= 0.12 + 1e-9
    assert len(gaps) > 100
    assert sum(seconds for _, seconds in bound[:measured]) < 0.1


ROOM = Room(max_rows=32, max_tokens=512, context_tokens=8192, page_size=16)
CPU = StepCosts(token_s=0.0005, row_s=0.001, step_s=0.02, pair_s=7e-7, context_s=2e-6)
"""About the default model on two cores, fp32."""


class Machine:
    """Takes what `CPU` says, times a little more or less; sometimes it stands still."""

    def __init__(self, seed: int, costs: StepCosts = CPU, stalls: float = 0.0) -> None:
        self._dice, self._costs, self._stalls = Random(seed), costs, stalls
        self.spent_s = 0.0

    def __call__(self, batch: StepBatch) -> float:
        seconds, _ = seconds_of(batch, self._costs)
        seconds *= self._dice.uniform(0.97, 1.08)
        seconds *= 8 if self._dice.random() < self._stalls else 1
        self.spent_s += seconds
        return seconds


@pytest.mark.parametrize("seed", range(5))
def test_costs_are_known_before_the_first_request(seed: int) -> None:
    machine = Machine(seed)
    costs = first_costs(machine, ROOM).costs
    decodes = [
        step_of(*[1] * rows, before=before) for rows in (4, 24) for before in (100, 3000)
    ]
    for step in (
        step_of(200),
        step_of(100, before=2400),
        step_of(1, 1, 1, 150, before=500),
        *decodes,
    ):
        told_s = costs.step_s + sum(
            costs.decode_s(1, row.start + 1)
            if len(row.tokens) == 1
            else costs.prefill_s(len(row.tokens), row.start)
            for row in step.rows
        )
        assert told_s == pytest.approx(seconds_of(step, CPU)[0], rel=0.2)
    assert machine.spent_s < LIMIT_S + 0.25


def test_a_machine_a_hundred_times_as_slow_is_asked_for_a_few_steps_alone() -> None:
    slow = Machine(1, StepCosts(0.05, 0.1, 0.0, 2.0, 7e-5))
    first_costs(slow, ROOM)
    assert slow.spent_s < 30


@pytest.mark.parametrize("stalls", [0.0, 0.04])
@pytest.mark.parametrize("seed", range(5))
def test_the_first_long_prompt_after_a_start_keeps_the_target_gap(
    seed: int, stalls: float
) -> None:
    """Beside one that runs, on a virtual clock; each chunk costs more than the one before.
    A machine that stands still now and then makes chunks a little smaller."""
    machine = Machine(seed, stalls=stalls)
    meter = first_costs(machine, ROOM)
    core = make_core(pages=4000, rows=32, audit=None)
    core._limits = StepLimits(32, 512, gap_s=0.15)
    core.costs = meter.costs
    gaps_s = [s for s in prefill_gaps_s(core, machine, meter, prompt=2501) if s < 0.6]
    assert 10 < len(gaps_s) < 40
    assert sorted(gaps_s)[int(0.95 * len(gaps_s))] < 1.2 * 0.15
    assert sum(gaps_s) / len(gaps_s) > 0.6 * 0.15  # and it is used


def prefill_gaps_s(core: Core, machine: Machine, meter: CostMeter, prompt: int) -> list[float]:
    """How long each step took in which a request decoded and a prompt was computed."""
    toy, gaps_s = make_toy(core), []
    core.submit(make_submit(1, prompt=[1], max_tokens=1000))
    for number in range(200):
        if number == 1:
            core.submit(make_submit(2, prompt=range(prompt), max_tokens=1))
        step = core.begin(0.0)
        assert step is not None
        seconds = machine(step.batch)
        meter.observe(step.batch, seconds)
        core.costs = meter.costs
        core.finish(step, toy.step(step.batch), 0.0)
        if len(step.batch.rows) == 2:
            gaps_s.append(seconds)
        elif gaps_s:
            return gaps_s
    raise AssertionError("the prompt was not computed")
