"""What `priority` promises: order, preemption on arrival, and a bound on the wait."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.conformance.kit import Effort, check
from schedulers.interface import ALWAYS, Cause, Mode, Promise, StepCosts
from schedulers.priority import HIGHEST, MAX_PASSED, Priority, PriorityOptions
from service.messages import Finish, Submit
from service.settings import Server
from service.strategy import make_scheduler
from tests.cores import make_submit
from tests.watched import Scene


def request(id: int, priority: int, at_s: float = 0.0, tokens: int = 3, **other: int) -> Submit:
    other.setdefault("max_tokens", 12)
    return make_submit(id, [id] * tokens, priority=priority, arrival_s=at_s, **other)


def scene(rows: int = 3, pages: int = 60, budget: int = 20, **options: object) -> Scene:
    return Scene("priority", options, rows=rows, pages=pages, budget=budget)


def test_the_more_urgent_goes_first_and_of_equals_the_older() -> None:
    found = scene(rows=1, age_s=10.0)
    found.submit(*(request(id, priority, at_s=id) for id, priority in enumerate([4, 4, 9, 0])))
    order = []
    while found.core.has_work:
        order += found.step()
    assert list(dict.fromkeys(order)) == [2, 0, 1, 3]


def test_waiting_for_one_age_counts_as_one_level() -> None:
    found = scene(rows=1, age_s=10.0)
    found.submit(request(0, 4, at_s=9.0), request(1, 3, at_s=0.0), request(2, 3, at_s=-2.0))
    assert found.step() == [2]  # 12 s older and one level lower than 0
    found.core.end(2, Finish.CANCELLED, 0.0)
    assert found.step() == [0]


def test_an_urgent_arrival_takes_the_row_of_the_last_by_key() -> None:
    found = scene(rows=3)
    found.step(request(0, 2), request(1, 1), request(2, 2, at_s=1.0))
    assert 3 in found.step(request(3, 15, at_s=2.0))
    assert {id: how.cause for id, how in found.plan.evict.items()} == {1: Cause.PRIORITY}


def test_an_urgent_arrival_takes_as_few_pages_as_it_needs() -> None:
    found = scene(rows=9, pages=16, budget=30)
    found.step(*(request(id, 0, at_s=id, tokens=5) for id in range(4)))  # 3 pages each
    assert 4 in found.step(request(4, 15, at_s=4.0, tokens=6))
    assert found.plan.evict.keys() == {3}


def test_nobody_is_evicted_when_all_of_them_together_do_not_give_enough() -> None:
    found = scene(rows=9, pages=13, budget=30)
    found.step(request(0, 4, tokens=19, max_tokens=3), request(1, 0, tokens=3))
    assert found.core.running.keys() == {0, 1}
    assert 2 not in found.step(request(2, 4, at_s=1.0, tokens=8))  # wants 4 pages
    assert not found.plan.evict


def test_an_urgent_arrival_does_not_wait_for_a_long_prompt_that_is_being_computed() -> None:
    found = scene(budget=8)
    found.step(request(0, 0, tokens=80))
    assert found.step(request(1, 15, at_s=1.0)) == [1, 0]
    assert found.plan.tokens == {1: 3, 0: 5}


def test_prefills_that_are_not_urgent_take_no_more_of_a_step_than_they_may() -> None:
    found = scene(rows=9, budget=40, bulk_tokens=8)
    found.step(request(0, 0, tokens=1), request(1, 7, tokens=6), request(2, 0, tokens=6))
    assert found.plan.tokens == {1: 6, 0: 1, 2: 2}
    found.step(request(3, 0, at_s=1.0, tokens=9))
    assert found.plan.tokens == {0: 1, 1: 1, 2: 4, 3: 4}, "decode rows are not counted"


def test_an_urgent_prefill_has_the_step_for_itself_and_decode_rows() -> None:
    found = scene(rows=9, budget=40, bulk_tokens=8)
    found.step(request(0, 0), request(1, 0, tokens=12))
    found.step(request(2, 8, at_s=1.0, tokens=20), request(3, 0, at_s=1.0))
    assert found.plan.tokens == {0: 1, 2: 20}
    found.step()
    assert found.plan.tokens == {0: 1, 2: 1, 1: 7, 3: 1}


def test_who_may_compute_no_more_in_this_step_makes_nobody_give_way() -> None:
    """Neither a prefill that goes on nor one that joins over a lower level."""
    found = scene(rows=2, budget=40, bulk_tokens=4)
    found.step(request(0, 1, tokens=10))
    found.step(request(1, 0, at_s=1.0, tokens=2), request(2, 8, at_s=1.0, tokens=30))
    assert found.plan.tokens == {2: 30}
    found = scene(rows=2, budget=40, bulk_tokens=8)
    found.step(request(0, 1), request(1, 1))
    found.step(request(2, 8, at_s=1.0), request(3, 7, at_s=1.0))
    assert found.plan.tokens == {0: 1, 2: 3}
    assert found.plan.evict.keys() == {1}


def test_an_urgent_one_goes_past_those_that_may_compute_no_more_in_this_step() -> None:
    """Bulk that has aged past it; which, first by the order, computes all the same."""
    found = scene(rows=9, budget=40, bulk_tokens=4, age_s=1.0)
    old = [request(id, 0, at_s=-50.0, tokens=4) for id in range(3)]
    found.step(*old, request(3, 15, tokens=9))
    assert found.plan.tokens == {0: 4, 3: 9}
    found.step()
    assert found.plan.tokens == {0: 1, 3: 1, 1: 4}


def test_as_many_are_passed_over_in_a_plan_as_cost_no_time() -> None:
    found = scene(rows=9, budget=40, bulk_tokens=4, age_s=1.0)
    old = [request(id, 0, at_s=-50.0, tokens=4) for id in range(MAX_PASSED + 2)]
    found.step(*old, request(len(old), 15, tokens=9))
    assert found.plan.tokens == {0: 4}


@pytest.mark.parametrize("bulk_tokens", [1, 5])
def test_with_a_limit_on_bulk_all_else_that_is_promised_holds(bulk_tokens: int) -> None:
    strategy = make_scheduler("priority", {"bulk_tokens": bulk_tokens})
    assert strategy.promises == ALWAYS | {Promise.NO_STARVATION}
    report = check(
        "bulk", {}, lambda: Priority(strategy.options), Effort(examples=20, shrinks=9)
    )
    assert [verdict.why for verdict in report.broken] == []


@pytest.mark.parametrize("late_s", [0.0, 1000.0])
def test_equals_never_preempt_each_other(late_s: float) -> None:
    found = scene(rows=1)
    found.step(request(1, 4, at_s=late_s))
    assert found.step(request(2, 4)) == [1]  # though it is older by key


def test_a_lower_level_that_has_aged_past_the_arrival_is_not_preempted() -> None:
    found = scene(rows=1, age_s=10.0)
    found.step(request(0, 3, at_s=0.0))
    assert found.step(request(1, 4, at_s=11.0)) == [0]
    assert 2 in found.step(request(2, 5, at_s=12.0))


def test_of_equal_keys_the_one_that_loses_least_gives_way() -> None:
    found = scene(rows=3, budget=30)
    found.core.costs = StepCosts(token_s=1.0, row_s=1.0)
    found.step(request(0, 0, tokens=9), request(1, 0, tokens=3), request(2, 0, tokens=8))
    found.step(request(3, 15, at_s=1.0))
    assert found.plan.evict.keys() == {1}


def test_after_so_many_preemptions_a_request_is_immune() -> None:
    found = scene(rows=1, max_preemptions=2)
    found.step(request(0, 0, max_tokens=99))
    for id in (1, 2):
        assert found.step(request(id, 15, at_s=id, max_tokens=1)) == [id]
        assert found.step() == [0]
    assert found.step(request(3, 15, at_s=3.0, max_tokens=1)) == [0]


@pytest.mark.parametrize(("most", "victim"), [(1, 1), (2, 0)])
def test_the_immune_give_way_to_page_pressure_when_others_cannot(
    most: int, victim: int
) -> None:
    found = scene(rows=2, pages=8, max_preemptions=most)
    found.step(request(0, 0, tokens=2), request(1, 4, tokens=2))
    found.step(request(2, 15, at_s=1.0, tokens=2, max_tokens=1))  # takes the row of 0
    assert found.core.requests[0].preemptions == 1
    while not any(how.cause is Cause.PAGES for how in found.plan.evict.values()):
        found.step()
    assert found.plan.evict.keys() == {victim}


def test_victims_of_a_swapping_priority_go_to_the_host() -> None:
    found = Scene("priority", {"eviction": "swap"}, rows=1, pages=20, host=9)
    found.step(request(0, 0))
    found.step(request(1, 15, at_s=1.0))
    assert found.plan.evict[0].mode is Mode.SWAP


def test_an_arrival_that_shares_its_victims_prompt_does_not_come_up_short() -> None:
    """What the victim gives back and the arrival pins again is counted once."""
    found = Scene("priority", {}, rows=2, pages=6, budget=30)
    prompt = [7] * 8
    found.submit(make_submit(0, [*prompt, 1], priority=0, max_tokens=3))
    found.step()
    assert 1 in found.step(make_submit(1, [*prompt, 2, 2, 2], priority=15, max_tokens=2))
    assert found.core.take_events()[1].short_rows == 0


def test_an_urgent_arrival_that_needs_the_whole_pool_gets_it() -> None:
    """The watermark is for others that run, and none is left."""
    found = Scene("priority", {}, rows=4, pages=6, budget=30, watermark=2)
    found.step(request(0, 0, tokens=3, max_tokens=3), request(1, 0, tokens=3, max_tokens=3))
    assert found.step(request(2, 15, at_s=1.0, tokens=11, max_tokens=1)) == [2]


AGE_S = 2.0


@settings(max_examples=25, deadline=None)
@given(lowest=st.integers(0, 15), rivals=st.lists(st.integers(0, 15), min_size=1, max_size=4))
def test_nobody_who_arrives_later_than_the_bound_goes_ahead(
    lowest: int, rivals: list[int]
) -> None:
    """One row, a second a step, and in each a rival arrives that runs for two."""
    found = scene(rows=1, age_s=AGE_S)
    found.submit(request(1, 15, max_tokens=3), request(0, lowest, max_tokens=2))
    bound_s = (15 - lowest) * AGE_S
    ran: list[int] = []
    while 0 not in ran:
        found.now_s += 1.0
        id = round(found.now_s) + 1
        rival = request(id, rivals[id % len(rivals)], at_s=found.now_s, max_tokens=2)
        ran = found.step(rival)
        assert all(found.now_s < 100.0 and id - 1 <= bound_s for id in ran if id > 1)


def test_options_without_sense_are_refused() -> None:
    bad = [("age_s", 0.0), ("age_s", float("nan")), ("max_preemptions", -1)]
    bad += [("bulk_tokens", -1), ("urgent", -1), ("urgent", 16)]
    for name, value in bad:
        with pytest.raises(ValueError, match=f"{name} is {value}"):
            PriorityOptions(**{name: value})


def test_by_default_the_bound_on_the_wait_is_under_the_default_queue_timeout() -> None:
    """Else the lowest priority is refused for waiting before it ages past the highest."""
    limit_s = Server().queue_timeout_s
    assert limit_s is not None
    assert HIGHEST * PriorityOptions().age_s < limit_s
