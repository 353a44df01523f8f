"""Learned answer lengths."""

from random import Random

import pytest

from schedulers.fcfs import FCFS, FCFSOptions
from schedulers.interface import NothingLearned, Plan, Snapshot
from service.lengths import FEW, KEPT, MOST_KINDS, LearnedLengths
from service.messages import Finish
from service.request import Request
from tests.cores import make_core, make_submit, make_toy, run


def view(output: int = 0, prompt: int = 100, tenant: str = "", most: int = 1000) -> Request:
    """A request that has so much output."""
    found = Request(make_submit(1, [0] * prompt, max_tokens=most, tenant=tenant), 16)
    found.output_tokens = output
    return found


def taught(*ends: tuple[int, Finish]) -> LearnedLengths:
    lengths = LearnedLengths()
    for tokens, reason in ends:
        lengths.ended(view(tokens), reason)
    return lengths


def test_quantiles_are_those_of_the_answers_that_ended() -> None:
    lengths = taught(*((tokens, Finish.STOP) for tokens in range(1, 101)))
    assert [lengths.quantile(view(), share) for share in (0.1, 0.5, 0.9)] == [10, 50, 90]


def test_what_an_answer_has_already_counts() -> None:
    lengths = taught(*((tokens, Finish.STOP) for tokens in range(1, 101)))
    assert lengths.quantile(view(output=80), 0.5) == 90
    assert lengths.quantile(view(output=100), 0.5) == 200  # longer than any that was seen


@pytest.mark.parametrize("reason", [Finish.EXPIRED, Finish.CANCELLED, Finish.MAX_TIME])
def test_answers_that_were_cut_do_not_teach_short_ones(reason: Finish) -> None:
    """Each is cut at some moment, so the long ones mostly are."""
    draw, ends = Random(1), []
    for _ in range(KEPT):
        tokens, cut = draw.randint(1, 400), draw.randint(1, 400)
        ends.append((tokens, Finish.STOP) if tokens < cut else (cut, reason))
    assert taught(*ends).quantile(view(), 0.5) == pytest.approx(200, rel=0.15)
    told_apart = sorted(tokens for tokens, why in ends if why is Finish.STOP)
    assert told_apart[len(told_apart) // 2] < 150


def test_where_answers_reach_what_was_allowed_that_is_expected() -> None:
    """Also of one that is allowed more than any before it."""
    lengths = taught(*((tokens, Finish.LENGTH) for tokens in range(1, 101)))
    assert lengths.quantile(view(most=7), 0.5) == 7
    assert lengths.quantile(view(most=900), 0.5) == 900


def test_callers_that_leave_early_do_not_make_answers_look_endless() -> None:
    lengths = taught(*((30, Finish.CANCELLED) for _ in range(100)))
    assert lengths.quantile(view(most=100_000), 0.5) == 30


def test_an_answer_is_within_its_own_limits() -> None:
    lengths = taught(*((tokens, Finish.STOP) for tokens in range(50, 150)))
    assert lengths.quantile(view(most=60), 0.5) == 60
    long = Request(make_submit(1, max_tokens=500), 16)
    long.min_tokens = 300
    assert lengths.quantile(long, 0.5) == 300


def test_tenants_and_prompt_lengths_are_told_apart() -> None:
    lengths = LearnedLengths()
    for _ in range(FEW):
        lengths.ended(view(10, prompt=100, tenant="chat"), Finish.STOP)
        lengths.ended(view(50, prompt=2000, tenant="chat"), Finish.STOP)
        lengths.ended(view(400, tenant="essays"), Finish.STOP)
    asked = [("chat", 120), ("chat", 1900), ("essays", 100)]
    found = [lengths.quantile(view(prompt=n, tenant=who), 0.5) for who, n in asked]
    assert found == [10, 50, 400]
    # Of no such prompt, and of no such tenant.
    assert lengths.quantile(view(prompt=9, tenant="chat"), 0.9) == 50
    assert lengths.quantile(view(tenant="new"), 0.99) == 400


def test_while_few_have_ended_nothing_is_assumed() -> None:
    lengths = taught(*[(30, Finish.STOP)] * (FEW - 1))
    assert lengths.quantile(view(output=3), 0.5) == 4
    assert NothingLearned().quantile(view(output=3), 0.5) == 4


def test_a_request_without_a_token_says_nothing() -> None:
    lengths = taught(*[(30, Finish.STOP)] * FEW, *[(0, Finish.QUEUE_TIMEOUT)] * KEPT)
    assert lengths.quantile(view(), 0.5) == 30


def test_what_was_usual_before_is_forgotten() -> None:
    lengths = taught(*[(500, Finish.STOP)] * KEPT, *[(20, Finish.STOP)] * KEPT)
    assert lengths.quantile(view(), 0.9) == 20


def test_tenants_without_end_take_no_memory_without_end() -> None:
    lengths = LearnedLengths()
    for number in range(3 * MOST_KINDS):
        lengths.ended(view(5, tenant=f"t{number}"), Finish.STOP)
    assert len(lengths._kinds) == MOST_KINDS
    assert lengths.quantile(view(tenant="t0"), 0.5) == 5


def test_a_core_learns_from_its_requests_and_tells_every_strategy() -> None:
    """One that comes later has what the one before it had learned."""

    class Asking(FCFS):
        told = 0

        def plan(self, snap: Snapshot) -> Plan:
            for each in snap.waiting.values():
                Asking.told = snap.lengths.quantile(each, 0.5)
            return super().plan(snap)

    core = make_core(pages=400, rows=8, scheduler=Asking(FCFSOptions()))
    for id in range(FEW):
        core.submit(make_submit(id, max_tokens=3))
    toy = make_toy(core)
    run(core, toy)
    core.planner.exchange("another", Asking(FCFSOptions()))
    core.submit(make_submit(99, max_tokens=17))
    run(core, toy)
    assert Asking.told == 17
