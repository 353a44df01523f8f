"""What no schedule can exceed, and that none does."""

from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from bench.simulation.bound import bound
from bench.simulation.catalogue import find_profile
from bench.simulation.choice import Choice
from bench.simulation.costs import StepModel, Work
from bench.simulation.demand import Demand, Load
from bench.simulation.engine import simulate
from bench.simulation.figures import SLO, figures
from bench.simulation.fluid import least_total_s, most_on_time
from bench.simulation.least_work import alone_s, least_work_s, needs
from bench.simulation.loads import BadLoad
from bench.simulation.profile import Profile
from bench.simulation.tariff import tariffs
from bench.trace import Arrival
from schedulers.registry import BUILT_IN
from tests.simulations import COSTS, make_load, make_profile

SLOW = SLO(ttft_s=6.0, tpot_s=2.0)
HIDING = replace(COSTS, weights_s=2.0, eager_s=0.5, link_token_s=1 / 256)
ROOMY = make_profile(pages=400, max_rows=8, max_step_tokens=64)

pieces = st.tuples(st.integers(0, 8), st.integers(1, 5), st.integers(1, 6))


def arrays(found: list[tuple[int, int, int]]) -> tuple[np.ndarray, ...]:
    """Starts, ends and work of pieces (start, length, work)."""
    start, length, work = np.array(found, float).T
    return start, start + length, work


@given(st.lists(pieces, min_size=1, max_size=5))
@settings(max_examples=30, deadline=None)
def test_the_greedy_choice_is_the_best_of_all_orders(found: list[tuple[int, int, int]]) -> None:
    # A linear gain is greatest at a corner of the polymatroid, and each corner is what some
    # order gives in which each piece takes all that is left for it.
    start, end, work = arrays(found)
    best = max(_gain(start, end, work, order) for order in permutations(range(len(found))))
    exact = int(end.max() - start.min())
    assert most_on_time(start, end, work, exact) == pytest.approx(best)
    assert most_on_time(start, end, work, 3) >= best - 1e-6


def _gain(
    start: np.ndarray, end: np.ndarray, work: np.ndarray, order: tuple[int, ...]
) -> float:
    done = np.zeros(len(work))
    for index in order:
        done[index] = min(
            work[index],
            *(
                high - low - done[(start >= low) & (end <= high)].sum()
                for low in start[start <= start[index]]
                for high in end[end >= end[index]]
            ),
        )
    return float((done / work).sum())


@given(st.lists(pieces, min_size=1, max_size=7))
@settings(max_examples=100, deadline=None)
def test_as_many_pieces_as_fit_whole_are_no_more_than_the_bound(
    found: list[tuple[int, int, int]],
) -> None:
    start, end, work = arrays(found)
    fitting = max(
        len(some)
        for n in range(len(found) + 1)
        for some in combinations(range(len(found)), n)
        if _earliest_deadline_first([found[i] for i in some])
    )
    for bins in (3, 50):
        assert most_on_time(start, end, work, bins) >= fitting - 1e-6


def _earliest_deadline_first(found: list[tuple[int, int, int]]) -> bool:
    """Whether all can be done, unit of time by unit of time."""
    left = [work for _, _, work in found]
    for now in range(20):
        due = [i for i, (start, _, _) in enumerate(found) if start <= now and left[i]]
        if due:
            left[min(due, key=lambda i: found[i][0] + found[i][1])] -= 1
        if any(left[i] and now + 1 >= s + length for i, (s, length, _) in enumerate(found)):
            return False
    return not any(left)


def test_two_of_three_that_need_the_whole_window_are_a_third_each() -> None:
    start, end, work = arrays([(0, 4, 4), (0, 4, 4), (0, 4, 1)])
    assert most_on_time(start, end, work, bins=4) == pytest.approx(1.75)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_no_order_of_units_ends_earlier_on_average(found: list[tuple[int, int]]) -> None:
    found.sort()
    best = min(_total(found, order) for order in permutations(range(len(found))))
    assert least_total_s([s for s, _ in found], [w for _, w in found]) == pytest.approx(best)


def _total(found: list[tuple[int, int]], order: tuple[int, ...]) -> int:
    """Sum of times to the end, unit by unit, the first in order that is there."""
    left, total, now = [work for _, work in found], 0, 0
    while any(left):
        there = [i for i in order if found[i][0] <= now and left[i]]
        now += 1
        if there:
            left[there[0]] -= 1
            total += 0 if left[there[0]] else now - found[there[0]][0]
    return total


def _with(profile: Profile, costs: StepModel) -> Profile:
    return structs.replace(profile, costs=costs)


EVEN = replace(HIDING, row_s=HIDING.token_s)
TARIFFS = {costs: tariffs(_with(ROOMY, costs)) for costs in (COSTS, HIDING, EVEN)}


@given(st.lists(st.integers(1, 12), max_size=7), st.integers(1, 57))
@settings(deadline=None)
@pytest.mark.parametrize("costs", TARIFFS)
def test_no_step_costs_less_than_what_its_rows_pay(
    costs: StepModel, contexts: list[int], prefill: int
) -> None:
    work = Work()
    work.add(0, prefill)
    for context in contexts:
        work.add(context, 1)
    step_s = np.array([costs.seconds(work)])
    reads_s = work.context_tokens * costs.context_token_s + work.pairs * costs.pair_s
    for one in TARIFFS[costs]:
        weights_s = [one.row_s + (1 + c) * costs.context_token_s for c in contexts]
        paid_s = sum(weights_s) * float(one.rate(step_s)[0]) + prefill * one.token_s
        assert paid_s + reads_s <= step_s[0] + 1e-6


@pytest.mark.parametrize("prefill", [0, 30, 60, 90, 120, 150, 500, 1984])
def test_prefill_that_hides_behind_the_weights_costs_no_less_than_it_pays(prefill: int) -> None:
    profile = structs.replace(find_profile("h100-8b"), max_rows=64)
    work = Work(prefill_tokens=prefill, rows=63)
    step_s = np.array([profile.costs.seconds(work)])
    for one in tariffs(profile):
        paid_s = 63 * one.row_s * float(one.rate(step_s)[0]) + prefill * one.token_s
        assert paid_s <= step_s[0] + 1e-9


loads = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.integers(1, 24),
        st.integers(1, 8),
        st.none() | st.integers(2, 30),
    ),
    min_size=1,
    max_size=14,
)


@given(loads, st.sampled_from([COSTS, HIDING]), st.booleans())
@settings(max_examples=30, deadline=None)
def test_no_strategy_exceeds_the_bound(
    found: list[tuple[int, int, int, int | None]], costs: StepModel, timed: bool
) -> None:
    profile = _with(make_profile(pages=30, host=10), costs)
    demands = [
        Demand(Arrival(at / 2, prompt, output), deadline_s=float(by or 9) if timed else None)
        for at, prompt, output, by in sorted(found, key=lambda one: one[0])
    ]
    _expect_bounded(Load("load", demands), profile)


blocks = st.lists(
    st.tuples(st.integers(0, 20), st.lists(st.integers(0, 1), min_size=1, max_size=3)),
    min_size=1,
    max_size=8,
)


@given(blocks)
@settings(max_examples=15, deadline=None)
def test_no_strategy_exceeds_it_where_prompts_begin_alike(
    found: list[tuple[int, list[int]]],
) -> None:
    profile = make_profile(pages=150, page_size=64, max_step_tokens=512)
    demands = [
        Demand(
            Arrival(at * 20.0, 512 * len(names) - at, 2 + at % 3, _prefixes(names)),
            deadline_s=900.0,
        )
        for at, names in sorted(found, key=lambda one: one[0])
    ]
    _expect_bounded(Load("load", demands), profile)


def _prefixes(names: list[int]) -> tuple[int, ...]:
    """A name that stands for everything up to there."""
    return tuple(int("1" + "".join(map(str, names[: i + 1])), 2) for i in range(len(names)))


def _expect_bounded(load: Load, profile: Profile) -> None:
    limit = bound(load, profile, SLOW)
    for name in BUILT_IN:
        found = figures(simulate(load, profile, Choice(name, name)), profile, SLOW)
        everybody = found.classes[0]
        assert everybody.good <= limit.in_slo + 1e-9, name
        if limit.deadlines_met is not None:
            assert (everybody.deadlines_met or 0.0) <= limit.deadlines_met + 1e-9, name
        if limit.output_tokens_per_s is not None and limit.mean_total_s is not None:
            assert found.output_tokens_per_s <= limit.output_tokens_per_s + 1e-6, name
            assert (everybody.mean_total_s or 0.0) >= limit.mean_total_s - 1e-6, name


def test_all_are_on_time_where_there_is_room_and_none_that_cannot_make_it_alone() -> None:
    alone = COSTS.alone_s(8, 5)
    for slack, met in ((1.01, 1.0), (0.5, 0.0)):
        demands = [
            Demand(Arrival(at, 8, 5), deadline_s=slack * alone) for at in (0.0, 50.0, 100.0)
        ]
        assert bound(Load("load", demands), make_profile(), SLOW).deadlines_met == met


def test_one_alone_costs_no_more_than_it_takes() -> None:
    profile = _with(make_profile(), replace(COSTS, row_s=COSTS.token_s))
    load = make_load((0.0, 8, 5))
    whole = needs(load, profile)
    run = simulate(load, profile, Choice("fcfs", "fcfs"))
    assert alone_s(whole, profile)[0] == pytest.approx(run.ended_s)
    limit = bound(load, profile, SLOW)
    assert limit.mean_total_s == pytest.approx(run.ended_s)
    for one in tariffs(profile):
        assert least_work_s(whole, np.array([9.0]), profile, one)[0] <= run.ended_s


@pytest.mark.parametrize("output", [1, 2, 5])
def test_a_last_step_that_begins_before_the_deadline_is_in_time(output: int) -> None:
    profile = _with(make_profile(), EVEN)
    ended_s = simulate(make_load((0.0, 8, output)), profile, Choice("fcfs", "fcfs")).ended_s
    load = Load("load", [Demand(Arrival(0.0, 8, output), deadline_s=ended_s - 1.0)])
    assert bound(load, profile, SLOW).deadlines_met == 1.0
    _expect_bounded(load, profile)


def test_what_an_earlier_prompt_began_with_is_free() -> None:
    profile = make_profile(page_size=64)
    arrivals = [
        Arrival(0, 1024, 2, (1, 2)),
        Arrival(1, 1100, 2, (1, 2, 3)),
        Arrival(2, 9, 2, (4,)),
    ]
    found = needs(Load("load", [Demand(one) for one in arrivals]), profile)
    assert found.prefill.tolist() == [1024, 76, 9]
    assert found.held.tolist() == [512, 588, 9]


def test_half_of_twice_as_much_as_the_machine_can_do_is_on_time() -> None:
    # Nine tokens in steps of four are about 4 s of the machine, and one arrives a second.
    demands = [Demand(Arrival(index, 9, 1), deadline_s=9.0) for index in range(40)]
    limit = bound(Load("load", demands), make_profile(max_step_tokens=4), SLOW)
    assert limit.deadlines_met is not None and 0.3 < limit.deadlines_met < 0.7


def test_a_closed_loop_has_no_bound() -> None:
    with pytest.raises(BadLoad, match="closed loop"):
        bound(make_load((0, 4, 2), clients=1), make_profile(), SLOW)
