"""Two steps in flight: each thing that can happen to a request, in each state it can be in."""

from collections.abc import Callable

import pytest

from models.batch import RowResult, StepResult
from schedulers.interface import Plan
from service.messages import Finish, Limits
from tests.cores import make_submit, solo
from tests.late import Airfield
from tests.test_ahead import SWAP, make_field

SUBJECT = make_submit(
    1, prompt=range(5), max_tokens=4, arrival_s=0.0, limits=Limits(4, end_by_s=99.0)
)
LAST = make_submit(
    1, prompt=range(5), max_tokens=1, arrival_s=0.0, limits=Limits(1, end_by_s=99.0)
)
OTHER = make_submit(2, prompt=[9], max_tokens=9)


def waiting() -> Airfield:
    return make_field(OTHER, SUBJECT, plans=(Plan({2: 1}), Plan({2: 1})))


def running() -> Airfield:
    field = make_field(SUBJECT, OTHER, plans=(Plan({1: 5, 2: 1}), Plan({2: 1})))
    field.begin()
    field.begin()
    field.land()
    return field


def in_one_step() -> Airfield:
    field = make_field(SUBJECT, OTHER)
    field.begin()
    return field


def in_two_steps() -> Airfield:
    field = in_one_step()
    field.begin()
    return field


def with_its_last_token_in_flight() -> Airfield:
    field = make_field(LAST, OTHER)
    field.begin()
    field.begin()
    return field


def ended_with_two_steps_in_flight() -> Airfield:
    field = in_two_steps()
    field.core.end(1, Finish.EXPIRED, 0.0)
    return field


def swapping(*more: Plan) -> Airfield:
    plans = (Plan({1: 5, 2: 1}), Plan({2: 1}), Plan({2: 1}, {1: SWAP}), *more)
    field = make_field(SUBJECT, OTHER, plans=plans, host=4, prefix_cache=False)
    field.begin()
    field.begin()
    field.land()
    field.begin()
    return field


def swapping_out() -> Airfield:
    field = swapping()
    field.land()
    return field


def swapped() -> Airfield:
    field = swapping(Plan({2: 1}))
    field.land()
    field.begin()
    field.land()
    return field


def resumed_with_both_copies_in_flight() -> Airfield:
    field = swapping_out()
    field.begin()
    return field


def end(field: Airfield) -> None:
    field.core.end(1, Finish.CANCELLED, 0.0)


def deadline(field: Airfield) -> None:
    """Found when the next step is decided."""
    while len(field.flights) > 1:
        field.land()
    field.begin(now_s=100.0)


def returns(field: Airfield) -> None:
    if field.flights:
        field.land()


def step_fails(field: Airfield) -> None:
    if field.flights:
        field.fail()


def row_fails(field: Airfield) -> None:
    if not field.flights:
        return
    flight = field.flights.popleft()
    rows = dict(flight.landing().rows)
    if 1 in rows:
        rows[1] = RowResult(error="NaN in the logits")
    field.core.finish(flight.step, StepResult(rows), 0.0)


COMPUTING = {in_one_step, in_two_steps, with_its_last_token_in_flight}
FAILS_WITH = {
    row_fails: COMPUTING,
    step_fails: COMPUTING | {swapping_out, resumed_with_both_copies_in_flight},
}


@pytest.mark.parametrize("event", [end, deadline, returns, step_fails, row_fails])
@pytest.mark.parametrize(
    "state",
    [
        waiting,
        running,
        in_one_step,
        in_two_steps,
        with_its_last_token_in_flight,
        ended_with_two_steps_in_flight,
        swapping_out,
        swapped,
        resumed_with_both_copies_in_flight,
    ],
)
def test_each_event_in_each_state_tells_one_end_and_gives_everything_back(
    state: Callable[[], Airfield], event: Callable[[Airfield], None]
) -> None:
    field = state()
    event(field)
    answers = field.run()
    if state is ended_with_two_steps_in_flight:
        expected = Finish.EXPIRED
    elif event is end:
        expected = Finish.CANCELLED
    elif event is deadline and state is not with_its_last_token_in_flight:
        expected = Finish.MAX_TIME
    elif state in FAILS_WITH.get(event, ()):
        expected = Finish.FAILED
    else:
        expected = Finish.LENGTH
    assert answers.finish[1] is expected
    subject = LAST if state is with_its_last_token_in_flight else SUBJECT
    alone, got = solo(subject), answers.tokens.get(1, [])
    assert got == (alone if expected is Finish.LENGTH else alone[: len(got)])
    if answers.finish[2] is Finish.LENGTH:
        assert answers.tokens[2] == solo(OTHER)
    residency = field.core.residency
    assert residency.pages.free_pages == 20
    assert residency.host.free_pages == residency.host.num_pages


def test_an_end_before_the_last_token_has_returned_is_told_without_it() -> None:
    field = with_its_last_token_in_flight()
    field.core.end(1, Finish.CANCELLED, 0.0)
    field.core.end(1, Finish.EXPIRED, 0.0)
    field.answers.take(field.core)
    assert field.answers.finish == {1: Finish.CANCELLED}
    assert field.core.residency.pages.holds(1)
    field.land()
    assert not field.core.residency.pages.holds(1)
    assert field.answers.tokens[1] == []
    assert field.answers.stats.overrun_tokens == 1
