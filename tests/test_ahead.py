"""Two steps in flight, line by line. `test_ahead_machine` has any order of events."""

import pytest

from models.ahead import Drawn
from models.batch import IN_FLIGHT, Row, RowResult, Sampling, StepResult
from schedulers.interface import Cause, Eviction, Mode, Plan
from service.messages import Finish, RequestEvent, Submit
from service.packing import unpack
from service.request import State
from tests.cores import EOS, Scripted, make_core, make_submit, make_toy, run, solo
from tests.late import Airfield
from tests.strategies import EVERY, strategy

RECOMPUTE = Eviction(Mode.RECOMPUTE, Cause.PAGES)
SWAP = Eviction(Mode.SWAP, Cause.PAGES)


def make_field(*submits: Submit, plans: tuple[Plan, ...] = (), **sizes: object) -> Airfield:
    """A core of 20 pages with two steps in flight, and these requests."""
    scheduler = sizes.pop("scheduler", None) or Scripted(*plans)
    sizes = {"pages": 20, "budget": 20, "scheduler": scheduler} | sizes
    field = Airfield(make_core(steps_in_flight=2, **sizes))
    for submit in submits:
        field.core.submit(submit)
    return field


def test_a_step_is_decided_while_the_token_it_goes_on_from_is_drawn() -> None:
    field = make_field(make_submit(1, prompt=[1, 2, 3]))
    field.begin()
    field.begin()
    [row] = field.flights[1].batch.rows
    assert (row.tokens, row.start, row.output, row.samples) == (
        [IN_FLIGHT],
        3,
        [IN_FLIGHT],
        True,
    )
    field.land()
    assert field.core.requests[1].output == solo(make_submit(1))[:1]
    assert field.run().tokens[1] == solo(make_submit(1))


@pytest.mark.parametrize("variant", EVERY)
def test_answers_are_those_of_a_request_alone(variant: str) -> None:
    submits = [
        make_submit(id, prompt=[id % 2] * (1 + id % 5), max_tokens=1 + 3 * (id % 4))
        for id in range(9)
    ]
    for pages in (40, 9):
        field = make_field(
            *submits, pages=pages, host=9, rows=4, budget=7, scheduler=strategy(variant)
        )
        answers = field.run()
        assert {s.id: answers.tokens[s.id] for s in submits} == {s.id: solo(s) for s in submits}
        assert not answers.stats.short_rows
        assert field.late.most == 2
        assert field.went_on > 20


def test_chunks_of_a_prompt_follow_each_other_in_flight() -> None:
    field = make_field(make_submit(1, prompt=range(10), max_tokens=1), budget=4)
    field.begin()
    field.begin()
    assert [row.start for flight in field.flights for row in flight.batch.rows] == [0, 4]
    assert field.run().finish == {1: Finish.LENGTH}


def test_the_row_of_a_last_token_in_flight_is_free_for_the_next_request() -> None:
    one, two = make_submit(1, max_tokens=1), make_submit(2, max_tokens=1)
    field = make_field(one, two, rows=1)
    field.begin()
    field.begin()
    assert [row.request for row in field.flights[1].batch.rows] == [2]
    assert field.core.requests[1].state is State.DRAINING
    assert field.run().tokens == {1: solo(one), 2: solo(two)}


def test_with_nothing_left_to_plan_the_step_in_flight_has_to_return() -> None:
    field = make_field(make_submit(1, max_tokens=1))
    field.begin()
    assert field.begin() is None
    assert len(field.flights) == 1
    field.land()
    assert field.answers.finish == {1: Finish.LENGTH}
    assert field.core.residency.pages.free_pages == 20


def test_no_tokens_at_all_is_a_prefill_that_ends_when_it_returns() -> None:
    field = make_field(make_submit(1, prompt=range(6), max_tokens=0), budget=4)
    answers = field.run()
    assert answers.finish == {1: Finish.LENGTH}
    assert answers.tokens[1] == []
    assert answers.receipt(1).steps == 2


def test_a_stop_token_ends_the_request_at_once_and_its_next_token_is_dropped() -> None:
    alone = solo(make_submit(1, max_tokens=8))
    stop = make_submit(1, max_tokens=8, stop_ids=[alone[0], EOS])
    field = make_field(stop)
    field.begin()
    field.begin()
    field.land()
    assert field.answers.finish == {1: Finish.STOP}
    assert field.core.requests[1].state is State.DRAINING
    assert field.core._snapshot(0.0).draining_pages == 2
    field.land()
    assert not field.core.has_work
    assert field.core.residency.pages.free_pages == 20
    assert field.answers.tokens[1] == alone[:1]
    assert field.answers.stats.overrun_tokens == 1
    assert field.answers.stats.output_tokens == 1


def test_a_stop_token_that_is_the_last_allowed_tells_stop() -> None:
    alone = solo(make_submit(1, max_tokens=8))
    last = alone.index(alone[3]) + 1
    field = make_field(make_submit(1, max_tokens=last, stop_ids=[alone[3]]))
    answers = field.run()
    assert answers.finish == {1: Finish.STOP}
    assert answers.stats.overrun_tokens == 0


def test_the_pages_of_a_last_token_stay_in_the_cache() -> None:
    field = make_field(make_submit(1, prompt=range(5), max_tokens=2))
    field.run()
    assert field.core.residency.pages.cached_pages == 3


def test_receipts_and_counts_are_those_of_one_step_in_flight() -> None:
    submits = [
        make_submit(id, prompt=range(id + 1), max_tokens=id % 4, arrival_s=0.0)
        for id in range(1, 7)
    ]
    sizes = {"pages": 40, "budget": 8, "rows": 9, "prefix_cache": False}
    one = make_core(**sizes)
    for submit in submits:
        one.submit(submit)
    expected = run(one, make_toy(one))
    answers = make_field(*submits, **sizes).run()
    assert {s.id: answers.receipt(s.id) for s in submits} == {
        s.id: expected.receipt(s.id) for s in submits
    }
    for counter in ("rows", "input_tokens", "output_tokens", "overrun_tokens"):
        assert getattr(answers.stats, counter) == getattr(expected.stats, counter)


def test_what_is_computed_again_is_counted_alike_for_requests_and_all_together() -> None:
    submits = [make_submit(id, prompt=[id] * 4, max_tokens=8) for id in range(1, 5)]
    field = make_field(*submits, pages=9, host=3, scheduler=strategy("fcfs auto"))
    answers = field.run()
    receipts = [answers.receipt(s.id) for s in submits]
    stats = answers.stats
    assert sum(r.preemptions for r in receipts) == stats.preemptions > 0
    assert sum(r.recomputed_tokens for r in receipts) == stats.recomputed_tokens > 0
    assert sum(r.steps for r in receipts) == stats.rows
    assert stats.input_tokens == sum(len(s.prompt) for s in submits)


def test_prompt_log_probabilities_come_once_and_whole() -> None:
    wanted = Sampling(prompt_logprobs=0)
    for pages, budget in ((20, 20), (20, 3), (5, 4)):
        field = make_field(make_submit(1, range(7), max_tokens=3), pages=pages, budget=budget)
        field.run()
        for id in (2, 3):
            submit = make_submit(id, prompt=range(7), max_tokens=3, sampling=wanted)
            field.core.submit(submit)
        events: list[RequestEvent] = []
        while field.core.has_work:
            step = field.begin()
            while len(field.flights) > (0 if step is None else 1):
                flight = field.flights.popleft()
                field.core.finish(flight.step, flight.landing(), 0.0)
            events += field.core.take_events()[0]
        for id in (2, 3):
            sent = [lp.token for e in events if e.id == id for lp in unpack(e.prompt_logprobs)]
            assert sent == list(range(1, 7))


def test_nobody_is_evicted_under_a_step_in_flight() -> None:
    """The strategy is asked again, and may remember what it did: else `fair` and `deadline`
    would forget with every eviction."""
    evicting = Plan({1: 1}, {2: RECOMPUTE})
    scheduler = Scripted(Plan({1: 3, 2: 3}), evicting, evicting, evicting)
    submits = [make_submit(1), make_submit(2)]
    field = make_field(*submits, scheduler=scheduler)
    field.begin()
    assert field.begin() is None
    assert field.begin() is None
    assert field.core.requests[2].state is State.RUNNING
    assert len(field.core.residency.pages.table(2)) == 2
    field.land()
    assert [row.request for row in field.begin().batch.rows] == [1]
    assert scheduler.rebuilds == [True, False, False, False]
    assert field.core.requests[2].state is State.WAITING
    answers = field.run()
    assert answers.tokens == {s.id: solo(s) for s in submits}
    assert answers.receipt(2).preemptions == 1


def test_evicting_gives_back_what_it_does_without_a_step_in_flight() -> None:
    field = make_field(make_submit(1, prompt=range(5)))
    field.begin()
    assert field.core._arithmetic.pages_from(1) == 3


@pytest.mark.parametrize("stops", [2, 3])
def test_nobody_is_evicted_for_pages_that_the_landing_brings(stops: int) -> None:
    """Nor is one evicted that ends with it."""
    first = solo(make_submit(stops))[0]
    submits = [make_submit(id, stop_ids=[first] if id == stops else []) for id in (1, 2, 3)]
    plans = (Plan({1: 3, 2: 3, 3: 3}), Plan({1: 1}, {2: RECOMPUTE}))
    field = make_field(*submits, plans=plans)
    field.begin()
    assert field.begin() is None
    field.land()
    step = field.begin()
    assert [row.request for row in step.batch.rows] == [1, 5 - stops]
    answers = field.run()
    assert answers.finish[stops] is Finish.STOP
    assert not answers.stats.preemptions


def test_a_request_is_resumed_while_the_copy_of_its_pages_is_in_flight() -> None:
    plans = (Plan({1: 5, 2: 1}), Plan({2: 1}), Plan({2: 1}, {1: SWAP}), Plan({1: 1, 2: 1}))
    one, two = make_submit(1, prompt=range(5)), make_submit(2, prompt=[9], max_tokens=9)
    field = make_field(one, two, plans=plans, host=4, prefix_cache=False)
    field.begin()
    field.begin()
    field.land()
    step = field.begin()
    assert [request.id for request in step.swapped_out] == [1]
    field.land()
    step = field.begin()
    assert [request.id for request in step.swapped_in] == [1]
    assert len(field.flights) == 2
    answers = field.run()
    assert answers.tokens == {1: solo(one), 2: solo(two)}
    assert answers.receipt(1).recomputed_tokens == 0
    assert field.core.residency.host.free_pages == 4


def test_a_strategy_is_exchanged_with_two_steps_in_flight() -> None:
    submits = [make_submit(id, prompt=[id] * 3, max_tokens=9) for id in range(1, 5)]
    for turns in range(6):
        field = make_field(*submits, pages=12, host=4)
        for _ in range(turns):
            field.turn()
        for variant in EVERY[turns::6]:
            field.core.planner.exchange(variant, strategy(variant))
            field.turn()
        answers = field.run()
        assert answers.tokens == {s.id: solo(s) for s in submits}


def test_a_step_that_fails_ends_its_own_rows_and_the_one_after_brings_the_others() -> None:
    one, two = make_submit(1), make_submit(2, prompt=[7])
    field = make_field(one, two, plans=(Plan({1: 3}), Plan({1: 1, 2: 1})))
    field.begin()
    field.begin()
    field.fail()
    assert field.answers.finish == {1: Finish.FAILED}
    answers = field.run()
    assert answers.tokens == {1: [], 2: solo(two)}
    assert answers.stats.overrun_tokens == 1


def test_two_steps_may_fail_one_after_the_other() -> None:
    field = make_field(make_submit(1), make_submit(2, prompt=[7]), make_submit(3), rows=2)
    field.begin()
    field.begin()
    field.fail()
    field.fail()
    answers = field.run()
    assert answers.finish == {1: Finish.FAILED, 2: Finish.FAILED, 3: Finish.LENGTH}
    assert field.core.residency.pages.free_pages == 20


def test_steps_that_return_out_of_order_or_are_too_many_are_refused() -> None:
    field = make_field(make_submit(1, max_tokens=9))
    field.begin()
    field.begin()
    with pytest.raises(AssertionError, match="so many steps are in flight"):
        field.begin()
    with pytest.raises(AssertionError, match="in the order in which they began"):
        field.core.finish(field.flights[1].step, StepResult({}), 0.0)


def row(request: int, tokens: list[int], output: list[int]) -> Row:
    return Row(request, tokens, 3, [1], True, Sampling(), [1, 2, 3], output)


def test_a_token_in_flight_is_the_one_that_its_request_drew_before() -> None:
    drawn = Drawn()
    chunk, decode = row(1, [5], []), row(2, [6], [6])
    drawn.remember([chunk, decode], {1: RowResult(), 2: RowResult((8,))})
    whole = row(1, [7], [])
    resolved = drawn.resolved([whole, row(2, [IN_FLIGHT], [6, IN_FLIGHT])])
    assert resolved[0] is whole
    assert (resolved[1].tokens, resolved[1].output) == ([8], [6, 8])


def test_a_token_that_nobody_drew_keeps_nobody_from_being_computed() -> None:
    drawn = Drawn()
    drawn.remember([row(2, [6], [6])], {2: RowResult(error="NaN in the logits")})
    resolved = drawn.resolved([row(2, [IN_FLIGHT], [6, IN_FLIGHT])])
    assert IN_FLIGHT not in [*resolved[0].tokens, *resolved[0].output]


def test_what_was_drawn_is_good_for_the_next_step_alone() -> None:
    drawn = Drawn()
    drawn.remember([row(2, [6], [6])], {2: RowResult((8,))})
    drawn.resolved([])
    assert drawn.resolved([row(2, [IN_FLIGHT], [IN_FLIGHT])])[0].tokens != [8]
