"""What `deadline` promises: earliest first, the hopeless refused, the patient served."""

from typing import Any

import pytest

from models.batch import Sampling
from schedulers.deadline import DeadlineOptions
from schedulers.hopeless import MAX_REFUSED
from schedulers.interface import RequestId, RequestView, StepCosts
from service.lengths import FEW
from service.messages import Finish, Submit
from tests.cores import Answers, make_submit
from tests.watched import Scene

COSTS = StepCosts(token_s=1.0, row_s=1.0, page_s=1.0)


def request(
    id: int, due_s: float | None = None, tokens: int = 3, min_tokens: int = 0, **other: Any
) -> Submit:
    sampling = Sampling(min_tokens=min_tokens)
    other.setdefault("max_tokens", 12)
    other.setdefault("arrival_s", 0.0)
    other.setdefault("prompt", [id] * tokens)
    return make_submit(id, deadline_s=due_s, sampling=sampling, **other)


def scene(
    rows: int = 1, pages: int = 60, budget: int = 20, host: int = 0, **options: object
) -> Scene:
    found = Scene("deadline", options, rows=rows, pages=pages, budget=budget, host=host)
    found.core.costs = COSTS
    return found


def order(found: Scene) -> list[int]:
    ran: list[int] = []
    while found.core.has_work:
        ran += found.step()
    return list(dict.fromkeys(ran))


def test_the_least_remaining_work_goes_first() -> None:
    found = scene()
    found.submit(request(1, 900.0, tokens=9), request(2, 900.0), request(3, 900.0, tokens=6))
    assert order(found) == [2, 3, 1]


def test_those_without_a_deadline_come_last_but_for_their_share() -> None:
    found = scene(rows=2)
    found.submit(request(0, max_tokens=2), *(request(id, 900.0) for id in range(1, 9)))
    assert found.step() == [1, 2]
    ran = order(found)
    assert 1 < ran.index(0) < len(ran) - 1
    assert [ran for ran in ran if ran] == list(range(1, 9))


def test_the_first_tokens_deadline_counts_until_it_was_sent() -> None:
    found = scene()
    found.submit(request(0, 900.0, tokens=9, first_token_deadline_s=7.0), request(1, 900.0))
    assert found.step() == [1]
    assert found.plan.refuse.keys() == {0}


def test_a_hopeless_request_is_refused_with_the_least_it_would_have_needed() -> None:
    found = scene()
    found.submit(request(0, 8.9, tokens=10), request(1, 9.0))
    found.step()
    answers = Answers()
    answers.take(found.core)
    assert answers.finish == {0: Finish.REFUSED}
    assert found.plan.refuse[0].estimate_s == 10.0
    assert "10.000 s" in answers.last[0].detail


@pytest.mark.parametrize(("due_s", "refused"), [(11.8, False), (11.6, True)])
def test_the_least_counts_the_prompt_and_min_tokens_but_never_max_tokens(
    due_s: float, refused: bool
) -> None:
    found = scene()
    found.step(request(0, due_s, tokens=10, min_tokens=4, max_tokens=30), request(1))
    assert bool(found.plan.refuse) == refused


@pytest.mark.parametrize(("due_s", "refused"), [(10.9, False), (10.7, True)])
def test_the_least_does_not_count_those_that_run_now(due_s: float, refused: bool) -> None:
    """They may end or give way."""
    found = scene(rows=4)
    found.step(request(0), request(1))
    found.step(request(2, due_s, tokens=10, min_tokens=3, max_tokens=30))
    assert bool(found.plan.refuse) == refused


@pytest.mark.parametrize(("due_s", "joins"), [(25.0, [2, 3]), (14.0, [3, 2])])
def test_who_would_be_late_at_the_pace_of_late_is_tried_behind_the_others(
    due_s: float, joins: list[int]
) -> None:
    """Its tokens take 2 s each, as long as two run."""
    found = scene(rows=4, budget=40)
    found.step(request(0, max_tokens=30), request(1, max_tokens=30))
    found.step(after_s=2.0)
    found.step(after_s=2.0)
    by_s = found.now_s + due_s
    late = request(2, by_s, tokens=10, min_tokens=5)
    ran = found.step(late, request(3, 900.0, tokens=20), after_s=0.0)
    assert [id for id in ran if id > 1] == joins
    assert not found.plan.refuse


def test_one_that_makes_it_if_its_answer_is_short_keeps_its_place() -> None:
    """Nine tokens are usual, which it could not have in time; its caller may know better."""
    found = scene(rows=4, budget=40)
    for id in range(100, 100 + FEW):
        found.step(request(id))
        while found.core.requests[RequestId(id)].output_tokens < 9:
            found.step()
        found.core.end(id, Finish.STOP, found.now_s)
    found.step(request(0, max_tokens=30), request(1, max_tokens=30))
    found.step(after_s=2.0)
    found.step(after_s=2.0)
    short = request(2, found.now_s + 20.0, tokens=10)
    ran = found.step(short, request(3, 900.0, tokens=20))
    assert [id for id in ran if id > 1] == [2, 3]


def test_what_the_cache_has_of_a_prompt_costs_nothing() -> None:
    found = scene()
    found.step(request(0, prompt=[7] * 10, max_tokens=1))
    found.step(request(1, 5.0, prompt=[7] * 10), request(2, 5.0, prompt=[8] * 10))
    assert found.plan.tokens == {1: 2}
    assert found.plan.refuse.keys() == {2}


@pytest.mark.parametrize("now_s", [0.0, 1e6])
def test_without_a_deadline_nobody_is_refused(now_s: float) -> None:
    found = scene()
    found.now_s = now_s
    found.submit(request(0, tokens=20), request(1, tokens=20))
    assert order(found) == [0, 1]


def test_an_expired_request_is_never_the_most_urgent() -> None:
    """One that has output cannot be refused: it comes after all that can make it, and after
    those without a deadline, however long it is overdue."""
    found = scene(rows=2, pages=8)
    found.step(request(0, 500.0), request(1, 500.0))
    while 1 in found.core.running:
        found.step()  # until pages are short
    assert found.core.requests[1].output_tokens
    found.now_s = 1000.0
    found.core.end(0, Finish.CANCELLED, found.now_s)
    found.submit(request(2, 3000.0, max_tokens=2), request(3, 2000.0, max_tokens=2))
    found.submit(request(4, 999.0), request(5, arrival_s=1000.0))
    ran = found.step()
    assert set(ran) <= {2, 3, 5} and len(ran) == 2
    assert found.plan.refuse.keys() == {4}
    assert order(found)[-1] == 1


@pytest.mark.parametrize("overdue_s", [10.0, 1e5])
def test_an_expired_request_gives_way_first_however_long_it_is_overdue(
    overdue_s: float,
) -> None:
    found = scene(rows=2, pages=8)
    due_s = [6.0, 6.0 + overdue_s + 900.0]
    found.step(*(request(id, at_s, tokens=3) for id, at_s in enumerate(due_s)))
    found.now_s = 6.0 + overdue_s
    while not found.plan.evict:
        found.step()
    assert found.plan.evict.keys() == {0}


def test_an_urgent_request_does_not_wait_for_a_long_prompt_that_is_being_computed() -> None:
    found = scene(rows=3, budget=8)
    found.step(request(0, 900.0, tokens=80))
    assert found.step(request(1, 90.0)) == [1, 0]
    assert found.plan.tokens == {1: 3, 0: 5}


def test_an_idle_engine_tries_what_is_hopeless_by_estimate_alone() -> None:
    """Costs are measured by steps: with everybody refused a wrong estimate stays wrong."""
    found = scene(rows=3)
    found.core.costs = StepCosts(token_s=1e6, row_s=1e6)
    assert found.step(request(0, 50.0), request(1, 40.0), request(2, -1.0)) == [1]
    assert found.plan.refuse.keys() == {0, 2}


def test_refusing_a_crowd_on_an_idle_engine_is_progress() -> None:
    found = scene()
    found.now_s = 1000.0
    found.submit(*(request(id, 1.0 + id) for id in range(2 * MAX_REFUSED)))
    for left in (MAX_REFUSED, 0):
        assert found.step() == []
        assert len(found.core.requests) == left


def test_only_so_many_are_refused_in_one_step_and_others_join_meanwhile() -> None:
    found = scene(rows=2)
    found.now_s = 1000.0
    many = 2 * MAX_REFUSED + 5
    found.submit(request(many), *(request(id, 1.0 + id) for id in range(many)))
    assert found.step() == [many]
    assert list(found.plan.refuse) == list(range(MAX_REFUSED))
    for _ in range(2):
        found.step()
    assert found.core.requests.keys() == {many}


def test_a_crowd_of_the_hopeless_holds_up_nobody() -> None:
    """On an idle engine neither, where a plan that lets nobody in leaves the device idle."""
    found = scene(rows=2)
    found.now_s = 1000.0
    found.submit(*(request(id, 1.0 + id) for id in range(5 * MAX_REFUSED)))
    found.submit(request(8999), request(9000, 1e6))
    assert sorted(found.step()) == [8999, 9000]
    assert len(found.plan.refuse) == MAX_REFUSED


def test_a_crowd_of_the_hopeless_does_not_keep_out_the_swapped() -> None:
    """Else nothing would be computed though somebody could run."""
    found = scene(rows=2, pages=8, eviction="swap", host=30)
    found.step(request(0, 1e5, tokens=3), request(1, 2e5, tokens=3))
    while not found.core.swapped:
        found.step()
    found.core.end(0, Finish.CANCELLED, found.now_s)
    found.now_s = 1000.0
    many = 3 * MAX_REFUSED
    assert found.step(*(request(2 + id, 1.0 + id) for id in range(many))) == [1]
    assert len(found.plan.refuse) == MAX_REFUSED


def test_prompts_whose_deadlines_are_plain_are_not_looked_up() -> None:
    """Only those that are refused are, for the estimate, and whoever might join."""
    found = scene(rows=1)
    looked_up: set[int] = set()
    inner = found.core._arithmetic.cached_tokens

    def cached_tokens(request: int) -> int:
        looked_up.add(request)
        return inner(request)

    found.core._arithmetic.cached_tokens = cached_tokens
    found.now_s = 1000.0
    found.submit(*(request(id, 1.0 + id) for id in range(3 * MAX_REFUSED)))
    found.step(request(900, 1e6))
    assert looked_up == {*range(MAX_REFUSED), 900}


def test_once_enough_are_refused_in_a_step_prompts_are_not_looked_up_any_more() -> None:
    found = scene(rows=1)
    looked_up: set[int] = set()
    inner = found.core._arithmetic.cached_tokens

    def cached_tokens(request: int) -> int:
        looked_up.add(request)
        return inner(request)

    found.core._arithmetic.cached_tokens = cached_tokens
    found.submit(*(request(id, 2.0) for id in range(3 * MAX_REFUSED)))  # each needs 3 s
    assert found.step(request(900, 1e6)) == [900]
    assert len(found.plan.refuse) == MAX_REFUSED
    assert looked_up == {*range(MAX_REFUSED), 900}


def test_options_without_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="patient_share"):
        DeadlineOptions(patient_share=0.0)
    with pytest.raises(ValueError, match="max_preemptions"):
        DeadlineOptions(max_preemptions=-1)


@pytest.mark.parametrize(("tokens", "ran"), [(5, [0, 1]), (70, [0])])
def test_a_prompt_that_would_make_a_running_request_late_waits(
    tokens: int, ran: list[int]
) -> None:
    found = scene(rows=2, budget=80)
    found.step(request(0, 16.0, min_tokens=6, max_tokens=6), after_s=1.0)
    assert found.step(request(1, 900.0, tokens=tokens), after_s=1.0) == ran


class OfTwenty:
    """Answers that have 20 tokens, as far as was learned."""

    def quantile(self, view: RequestView, share: float) -> int:
        return max(20, view.output_tokens + 1) if share else view.output_tokens + 1

    def ended(self, *_: object) -> None:
        """Learns nothing more."""


@pytest.mark.parametrize(("tokens", "ran"), [(3, [0, 1]), (9, [0])])
def test_a_running_request_that_may_be_late_by_a_learned_length_holds_up_long_prefills_alone(
    tokens: int, ran: list[int]
) -> None:
    found = scene(rows=2, budget=80)
    found.core._lengths = OfTwenty()
    found.step(request(0, 16.0, max_tokens=40), after_s=1.0)
    assert found.step(request(1, 900.0, tokens=tokens), after_s=1.0) == ran


@pytest.mark.parametrize(("most", "joins"), [(1, [0, 1]), (0, [0])])
def test_one_without_a_deadline_is_preempted_for_one_at_risk_and_not_sooner(
    most: int, joins: list[int]
) -> None:
    """It needs 5 of its 20 s; a quarter of them is the least that it keeps to spare."""
    found = scene(rows=1, max_preemptions=most)
    found.step(request(0, max_tokens=40))
    found.step(after_s=1.0)
    found.step(after_s=1.0)
    hurried = request(1, found.now_s + 20.0, min_tokens=3, max_tokens=3)
    ran = found.step(hurried) + [id for _ in range(8) for id in found.step(after_s=1.0)]
    assert set(ran) == {0}
    ran += [id for _ in range(3) for id in found.step(after_s=1.0)]
    assert list(dict.fromkeys(ran)) == joins
