"""What `priority` promises: order, preemption on arrival, and a share for the oldest."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers.interface import ALWAYS, Cause, Mode, Promise, StepCosts
from schedulers.priority import CALM_PLANS, PriorityOptions
from service.messages import Finish, Submit
from service.strategy import BadOptions, make_scheduler
from tests.cores import make_submit
from tests.watched import Scene


def request(id: int, priority: int, at_s: float = 0.0, tokens: int = 3, **other: int) -> Submit:
    other.setdefault("max_tokens", 12)
    return make_submit(id, [id] * tokens, priority=priority, arrival_s=at_s, **other)


def scene(rows: int = 3, pages: int = 60, budget: int = 20, **options: object) -> Scene:
    return Scene("priority", options, rows=rows, pages=pages, budget=budget)


def test_the_more_urgent_goes_first_and_of_equals_the_older() -> None:
    found = scene(rows=1, aged_share=0.0)
    found.submit(*(request(id, priority, at_s=id) for id, priority in enumerate([4, 4, 9, 0])))
    order = []
    while found.core.has_work:
        order += found.step()
    assert list(dict.fromkeys(order)) == [2, 0, 1, 3]


def test_no_age_makes_up_for_a_level() -> None:
    found = scene(rows=1)
    found.submit(request(0, 3, at_s=-1000.0), request(1, 4, at_s=0.0))
    assert found.step() == [1]


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
    found = scene(budget=8, bulk_share=1.0)
    found.step(request(0, 0, tokens=80))
    assert found.step(request(1, 15, at_s=1.0)) == [1, 0]
    assert found.plan.tokens == {1: 3, 0: 5}


def test_while_urgent_requests_come_prefills_of_others_take_part_of_a_step() -> None:
    found = scene(rows=9, budget=40, bulk_share=0.2, aged_share=0.0)
    found.step(request(0, 0, tokens=1), request(1, 8, tokens=1, max_tokens=99))
    found.step(request(2, 7, tokens=6), request(3, 0, tokens=6))
    assert found.plan.tokens == {0: 1, 1: 1, 2: 6, 3: 2}, "decode rows are not counted"
    found.step(request(4, 0, at_s=1.0, tokens=9))
    assert found.plan.tokens == {0: 1, 1: 1, 2: 1, 3: 4, 4: 4}


def test_where_none_is_urgent_prefills_take_the_whole_step() -> None:
    found = scene(rows=9, budget=40)
    found.step(request(0, 7, tokens=30), request(1, 0, tokens=30))
    assert found.plan.tokens == {0: 30, 1: 10}


def test_steps_are_whole_again_some_time_after_the_last_urgent_request() -> None:
    found = scene(rows=9, budget=40)
    found.step(request(0, 8, max_tokens=1))
    for id in range(1, CALM_PLANS):
        found.step(request(id, 0, tokens=30, max_tokens=1))
        assert found.plan.tokens[id] <= 20
        found.core.end(id, Finish.CANCELLED, 0.0)
    found.step()
    found.step(request(CALM_PLANS, 0, tokens=30))
    assert found.plan.tokens == {CALM_PLANS: 30}


def test_an_urgent_prefill_has_the_step_for_itself_and_decode_rows() -> None:
    found = scene(rows=9, budget=40, bulk_share=0.2)
    found.step(request(0, 0), request(1, 0, tokens=42))
    found.step(request(2, 8, at_s=1.0, tokens=20), request(3, 0, at_s=1.0))
    assert found.plan.tokens == {0: 1, 2: 20}
    found.step()
    assert found.plan.tokens == {0: 1, 2: 1, 1: 5, 3: 3}


def test_who_may_compute_no_more_in_this_step_makes_nobody_give_way() -> None:
    """Neither a prefill that goes on nor one that joins over a lower level."""
    found = scene(rows=2, budget=40, bulk_share=0.1)
    found.step(request(0, 1, tokens=50))
    found.step(request(1, 0, at_s=1.0, tokens=2), request(2, 8, at_s=1.0, tokens=30))
    assert found.plan.tokens == {2: 30}
    found = scene(rows=2, budget=40, bulk_share=0.2)
    found.step(request(0, 1), request(1, 1))
    found.step(request(2, 8, at_s=1.0), request(3, 7, at_s=1.0))
    assert found.plan.tokens == {0: 1, 2: 3}
    assert found.plan.evict.keys() == {1}


@pytest.mark.parametrize("bulk_share", [0.1, 1.0])
def test_who_gives_prefills_the_whole_step_conserves_work(bulk_share: float) -> None:
    conserves = {Promise.WORK_CONSERVING} if bulk_share == 1 else set()
    promises = make_scheduler("priority", {"bulk_share": bulk_share}).promises
    assert promises == ALWAYS | {Promise.NO_STARVATION} | conserves


@pytest.mark.parametrize("late_s", [0.0, 1000.0])
def test_equals_never_preempt_each_other(late_s: float) -> None:
    found = scene(rows=1)
    found.step(request(1, 4, at_s=late_s))
    assert found.step(request(2, 4)) == [1]  # though it is older by key


def test_a_lower_level_is_preempted_whatever_its_age() -> None:
    found = scene(rows=1)
    found.step(request(0, 3, at_s=-1000.0))
    assert found.step(request(1, 4)) == [1]


def test_the_lowest_level_is_preempted_first_whatever_it_loses() -> None:
    found = scene(rows=3, budget=30)
    found.core.costs = StepCosts(token_s=1.0, row_s=1.0)
    found.step(request(0, 1, tokens=2), request(1, 0, tokens=9), request(2, 1, tokens=2))
    found.step(request(3, 15, at_s=1.0))
    assert found.plan.evict.keys() == {1}


def test_levels_that_are_close_need_not_preempt_each_other() -> None:
    found = scene(rows=1, preempt_levels=3)
    found.step(request(0, 4))
    assert found.step(request(1, 6)) == [0]
    assert found.step(request(2, 7)) == [2]


def test_of_a_level_the_one_that_loses_least_is_preempted() -> None:
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


class Flood:
    """Requests of a level that never stop: so many always wait."""

    def __init__(self, found: Scene, priority: int, waiting: int = 2, **other: int) -> None:
        self._found, self._priority, self._other = found, priority, other
        self._waiting = waiting
        self._next = 1000 * (1 + priority)

    def top_up(self, most: int = 99) -> None:
        found, level = self._found, self._priority
        there = sum(view.priority == level for view in found.core.waiting.values())
        for _ in range(min(most, self._waiting - there)):
            found.submit(request(self._next, level, at_s=found.now_s, **self._other))
            self._next += 1


RUN = 3  # plans, of every request


@settings(max_examples=10, deadline=None)
@given(
    older=st.integers(0, 4),
    rows=st.integers(1, 12),
    share=st.sampled_from([0.1, 0.25, 0.5]),
    top=st.integers(1, 15),
)
def test_the_lowest_waits_for_those_before_it_over_their_share(
    older: int, rows: int, share: float, top: int
) -> None:
    found = scene(rows=rows, pages=500, budget=60, aged_share=share, bulk_share=1.0)
    flood = Flood(found, top, waiting=rows, max_tokens=RUN)
    flood.top_up()
    found.step()
    found.submit(*(request(id, 0, max_tokens=RUN) for id in range(older + 1)))
    comes_free = RUN
    bound = (older * (RUN + comes_free) + 1) / (share * rows) + comes_free + 1
    plans, ran = 0, [0]
    while older not in ran:
        flood.top_up()
        ran = found.step()
        plans += 1
        assert plans <= bound


@settings(max_examples=10, deadline=None)
@given(
    rows=st.integers(1, 16),
    share=st.sampled_from([0.05, 0.1, 0.3]),
    lows=st.integers(1, 9),
    urgents=st.integers(1, 9),
)
def test_the_urgent_lose_the_share_and_one_request_at_most(
    rows: int, share: float, lows: int, urgents: int
) -> None:
    found = scene(rows=rows, pages=2000, budget=99, aged_share=share)
    floods = [Flood(found, 15, rows, max_tokens=urgents), Flood(found, 0, 9, max_tokens=lows)]
    taken = 0
    for plans in range(1, 61):
        for flood in floods:
            flood.top_up()
        found.step()
        on_share = found.plan.on_share
        taken += len(on_share)
        assert len(on_share) < share * rows + 1
        assert taken <= share * rows * (plans + 1) + lows


@pytest.mark.parametrize(("rows", "held"), [(4, 20), (20, 200)])
def test_a_prompt_that_runs_already_goes_on_though_it_weighs_more_than_the_share(
    rows: int, held: int
) -> None:
    """Each of the urgent takes a whole step, so rows are free and it is never preempted."""
    found = scene(rows=rows, pages=400, budget=20)
    flood = Flood(found, 15, tokens=40, max_tokens=1)
    found.submit(request(1, 0, tokens=held + 60, max_tokens=2))
    for _ in range(held // 20):
        found.step()
    plans = 0
    while 1 in found.core.requests:
        flood.top_up()
        found.step()
        plans += 1
        assert 1 not in found.core.waiting
        assert plans <= 60


@pytest.mark.parametrize("answer", [1, 12])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_where_tokens_are_short_the_urgent_lose_the_share_of_them(
    share: float, answer: int
) -> None:
    found = scene(rows=2, pages=100, budget=1, aged_share=share)
    floods = [Flood(found, 9, 1, tokens=1, max_tokens=3)]
    floods += [Flood(found, 4, 1, tokens=1, max_tokens=answer)]
    taken = 0
    for plans in range(1, 200):
        for flood in floods:
            flood.top_up()
        found.step()
        taken += sum(found.plan.tokens[id] for id in found.plan.on_share)
        assert taken <= share * (plans + 1) + answer + 1
    assert taken > share * plans / 2


@pytest.mark.parametrize(("rows", "share"), [(2, 0.5), (20, 0.1)])
def test_one_that_needs_most_of_the_pages_does_not_wait_for_ever_new_members(
    rows: int, share: float
) -> None:
    found = scene(rows=rows, pages=40, budget=80, aged_share=share, bulk_share=1.0)
    flood = Flood(found, 4, waiting=9, tokens=6, max_tokens=4)
    for _ in range(5):
        flood.top_up()
        found.step()
    found.submit(request(1, 9, tokens=74, max_tokens=2))
    for _ in range(20):
        flood.top_up()
        found.step()
    assert 1 not in found.core.waiting


def test_the_share_goes_to_the_oldest_and_its_receipt_says_so() -> None:
    found = scene(rows=10, pages=500, budget=60)
    flood = Flood(found, 15, waiting=10, max_tokens=4)
    flood.top_up()
    found.step()
    found.submit(request(5, 4, max_tokens=4), request(6, 0, max_tokens=4))
    events = []
    while len(events) < 2:
        flood.top_up()
        found.step()
        events += [e for e in found.core.take_events()[0] if e.id < 9 and e.receipt]
    assert [(e.id, e.receipt and e.receipt.share_tokens) for e in events] == [(5, 6), (6, 6)]


def test_a_share_that_is_not_used_buys_no_burst() -> None:
    found = scene(rows=10, pages=500, budget=60, aged_share=0.2)
    flood = Flood(found, 15, waiting=10, max_tokens=2)
    for _ in range(50):
        flood.top_up()
        found.step()
    found.submit(*(request(id, 0) for id in range(9)))
    for _ in range(9):
        flood.top_up()
        found.step()
        assert len(found.core.running.keys() & set(range(9))) <= 2


def test_the_oldest_that_run_are_on_the_share_and_are_not_preempted() -> None:
    found = scene(rows=10, pages=500, budget=60, aged_share=0.2)
    found.step(*(request(id, 0, max_tokens=99) for id in range(10)))
    flood = Flood(found, 15, waiting=10)
    for _ in range(4):
        flood.top_up()
        found.step()
    assert found.core.running.keys() & set(range(10)) == {0, 1}


def test_members_of_the_share_give_their_pages_last() -> None:
    found = scene(rows=10, pages=24, budget=60, max_preemptions=99)
    found.step(request(0, 0, tokens=2, max_tokens=20))
    flood = Flood(found, 15, waiting=10, tokens=2, max_tokens=20)
    evicted: set[int] = set()
    while 0 in found.core.requests:
        flood.top_up()
        found.step()
        evicted |= found.plan.evict.keys()
    assert evicted and 0 not in evicted


def test_pages_are_kept_for_the_oldest_though_each_of_the_urgent_needs_fewer() -> None:
    found = scene(rows=10, pages=20, budget=60)
    flood = Flood(found, 15, waiting=10, tokens=2, max_tokens=5)
    for step in range(40):
        flood.top_up(1)
        if 0 in found.step(*[request(0, 0, tokens=24, max_tokens=2)] * (step == 9)):
            return
    raise AssertionError("it has starved")


def test_one_that_holds_the_pages_of_many_rows_counts_for_as_many() -> None:
    found = scene(rows=10, pages=40, budget=60, aged_share=0.2)
    flood = Flood(found, 15, waiting=10, tokens=2, max_tokens=2)
    flood.top_up()
    found.step()
    found.submit(request(0, 0, tokens=20, max_tokens=6), request(1, 0, tokens=2))
    while 0 in found.core.requests:
        flood.top_up()
        found.step()
        assert 1 not in found.core.running


def test_a_prompt_on_the_share_gets_its_part_of_a_step_and_what_others_leave() -> None:
    found = scene(rows=10, pages=500, budget=50, aged_share=0.2)
    found.step(request(1, 15, tokens=200), request(0, 0, tokens=200))
    assert found.plan.tokens == {0: 10, 1: 40}
    found.step()
    assert found.plan.tokens == {0: 10, 1: 40}
    found.core.end(1, Finish.CANCELLED, 0.0)
    found.step()
    assert found.plan.tokens == {0: 25}, "half a step, while urgent ones come"


def test_those_that_join_on_the_share_have_its_tokens_together() -> None:
    found = scene(rows=10, pages=500, budget=50, aged_share=0.2)
    found.step(request(2, 15, tokens=200), request(0, 0, tokens=8), request(1, 0, tokens=8))
    assert found.plan.tokens == {0: 8, 1: 2, 2: 40}


def test_without_a_share_the_lowest_may_wait_forever_and_nothing_else_is_said() -> None:
    strategy = make_scheduler("priority", {"aged_share": 0.0})
    assert Promise.NO_STARVATION not in strategy.promises
    found = scene(rows=10, pages=500, budget=60, aged_share=0.0)
    flood = Flood(found, 15, waiting=10, max_tokens=4)
    flood.top_up()
    found.step(request(0, 0))
    for _ in range(200):
        flood.top_up()
        assert 0 not in found.step()


def test_options_without_sense_are_refused() -> None:
    bad: list[tuple[str, float]] = [("aged_share", -0.1), ("aged_share", 0.6)]
    bad += [("aged_share", float("nan")), ("max_preemptions", -1)]
    bad += [("preempt_levels", 0)]
    bad += [("bulk_share", 0.0), ("bulk_share", 1.1), ("urgent", -1), ("urgent", 16)]
    for name, value in bad:
        with pytest.raises(ValueError, match=f"{name} is {value}"):
            PriorityOptions(**{name: value})


def test_an_option_of_the_past_is_refused_with_those_there_are() -> None:
    with pytest.raises(BadOptions, match=r"no option 'age_s'; it has: aged_share, bulk_share"):
        make_scheduler("priority", {"age_s": 6.0})
