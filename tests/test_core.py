"""The engine core over the toy model, line by line. `test_strategy_machine` has any order of
events."""

import pytest

from memory.host import HostPages
from memory.pages import PageAllocator
from models.batch import RowResult, Sampling, StepBatch, StepResult
from schedulers.fcfs import FCFS, FCFSOptions
from schedulers.interface import Cause, Eviction, Mode, Plan, RequestId, Snapshot
from service.arithmetic import Pages
from service.core import Core
from service.deadlines import Deadlines
from service.messages import Finish, Limits
from service.packing import unpack
from service.request import Request, State
from service.residency import Residency
from tests.cores import (
    EOS,
    Answers,
    RaisingRunner,
    make_core,
    make_submit,
    make_toy,
    run,
    solo,
    step_once,
)
from tests.erratic import Erratic, ErraticOptions


def test_requests_join_and_leave_at_every_step() -> None:
    core = make_core(pages=20)
    toy = make_toy(core)
    core.submit(make_submit(1, max_tokens=3))
    step_once(core, toy)
    core.submit(make_submit(2, max_tokens=1))
    batch = step_once(core, toy)
    assert batch is not None
    assert [row.request for row in batch.rows] == [1, 2]
    batch = step_once(core, toy)
    assert batch is not None
    assert [row.request for row in batch.rows] == [1]
    assert not core.has_work


def test_pages_come_back_in_the_step_in_which_a_request_ends() -> None:
    core = make_core(pages=6)
    toy = make_toy(core)
    core.submit(make_submit(1, max_tokens=2))
    step_once(core, toy)
    assert core.residency.pages.free_pages == 4
    step_once(core, toy)
    assert core.residency.pages.free_pages == 6


def test_a_request_owns_pages_only_for_what_is_computed() -> None:
    core = make_core(pages=20)
    core.submit(make_submit(1, prompt=[1, 2, 3, 4], max_tokens=30))
    step_once(core, make_toy(core))
    assert len(core.residency.pages.table(1)) == 2


def test_the_last_sampled_token_needs_no_slot() -> None:
    core = make_core(pages=3)
    core.submit(make_submit(1, prompt=[1, 2, 3], max_tokens=4))
    answers = run(core, make_toy(core))
    assert answers.finish[1] is Finish.LENGTH
    assert len(answers.tokens[1]) == 4


def test_what_can_never_fit_ends_at_once_and_the_next_request_is_served() -> None:
    core = make_core(pages=3)
    core.submit(make_submit(1, prompt=[1, 2, 3], max_tokens=5))
    core.submit(make_submit(2, prompt=[1], max_tokens=1))
    answers = run(core, make_toy(core))
    assert answers.finish == {1: Finish.FAILED, 2: Finish.LENGTH}
    assert "never fit" in answers.last[1].detail


def test_max_tokens_of_the_whole_context_blocks_nobody_behind_it() -> None:
    core = make_core(pages=10, rows=2)
    core.submit(make_submit(1, prompt=[1, 2], max_tokens=19))
    core.submit(make_submit(2, prompt=[1], max_tokens=1))
    batch = step_once(core, make_toy(core))
    assert batch is not None
    assert len(batch.rows) == 2


def test_max_tokens_0_computes_the_prompt_and_ends_with_length() -> None:
    core = make_core(pages=10, budget=2)
    core.submit(make_submit(1, prompt=[1, 2, 3, 4, 5], max_tokens=0))
    answers = run(core, make_toy(core))
    assert answers.finish[1] is Finish.LENGTH
    assert answers.tokens[1] == []
    assert answers.last[1].receipt is not None
    assert answers.last[1].receipt.steps == 3


def test_a_warm_cache_spares_the_prompt_and_changes_no_token() -> None:
    core = make_core(pages=20, budget=20)
    toy = make_toy(core)
    core.submit(make_submit(1, prompt=range(7), max_tokens=5))
    cold = run(core, toy)
    core.submit(make_submit(2, prompt=range(7), max_tokens=5))
    warm = run(core, toy)
    assert warm.tokens[2] == cold.tokens[1]
    assert warm.last[2].receipt is not None
    assert warm.last[2].receipt.cached_tokens == 6


def test_the_last_prompt_token_is_computed_even_when_all_is_cached() -> None:
    core = make_core(pages=20, budget=20)
    toy = make_toy(core)
    for id in (1, 2):
        core.submit(make_submit(id, prompt=range(6), max_tokens=1))
        answers = run(core, toy)
    assert answers.last[2].receipt is not None
    assert answers.last[2].receipt.cached_tokens == 4


def test_prompt_log_probabilities_come_once_and_whole_despite_cache_and_preemption() -> None:
    wanted = Sampling(prompt_logprobs=0)
    for pages, budget in ((20, 20), (20, 3), (5, 4)):
        core = make_core(pages=pages, budget=budget)
        toy = make_toy(core)
        core.submit(make_submit(1, prompt=range(7), max_tokens=3))
        run(core, toy)
        for id in (2, 3):
            core.submit(make_submit(id, prompt=range(7), max_tokens=3, sampling=wanted))
        events = []
        while core.has_work:
            step_once(core, toy)
            events += core.take_events()[0]
        for id in (2, 3):
            sent = [lp.token for e in events if e.id == id for lp in unpack(e.prompt_logprobs)]
            assert sent == list(range(1, 7))


def test_what_the_cache_may_serve_grows_with_what_was_sent() -> None:
    """Prompt log-probabilities are owed from the start, sent in part, then preempted."""
    plans = [
        lambda snap: Plan({1: 4}),
        lambda snap: Plan({2: 2}),
        lambda snap: Plan({1: 1}, {2: Eviction(Mode.RECOMPUTE, Cause.PAGES)}),
    ]

    class Scripted(FCFS):
        def plan(self, snap: Snapshot) -> Plan:
            for view in snap.waiting.values():
                snap.pending(view)
            return plans.pop(0)(snap) if plans else super().plan(snap)

    core = make_core(pages=20, budget=20, scheduler=Scripted(FCFSOptions()))
    toy = make_toy(core)
    core.submit(make_submit(1, prompt=[1] * 4, max_tokens=9))
    step_once(core, toy)
    owed = make_submit(2, prompt=[1] * 5, max_tokens=3, sampling=Sampling(prompt_logprobs=0))
    core.submit(owed)
    assert run(core, toy).tokens[2] == solo(owed)


def test_a_preempted_request_keeps_its_place_and_says_the_same() -> None:
    core = make_core(pages=6, rows=3, budget=12)
    submits = [make_submit(id, prompt=[id] * 3, max_tokens=6) for id in (1, 2, 3)]
    for submit in submits:
        core.submit(submit)
    answers = run(core, make_toy(core))
    preemptions = [answers.last[id].receipt.preemptions for id in (1, 2, 3)]
    assert preemptions[0] == 0
    assert max(preemptions) > 0
    assert all(answers.tokens[s.id] == solo(s) for s in submits)


def test_a_stop_id_ends_the_request_and_is_its_last_token() -> None:
    alone = solo(make_submit(1, max_tokens=8))
    core = make_core(pages=20)
    core.submit(make_submit(1, max_tokens=8, stop_ids=[alone[2], EOS]))
    answers = run(core, make_toy(core))
    assert answers.finish[1] is Finish.STOP
    assert answers.tokens[1] == alone[: alone.index(alone[2]) + 1]


def test_each_limit_ends_a_request_its_own_way() -> None:
    cases = {
        Finish.MAX_TIME: Limits(9, end_by_s=5.0),
        Finish.EXPIRED: Limits(9, expire_by_s=5.0),
        Finish.QUEUE_TIMEOUT: Limits(9, admit_by_s=5.0),
    }
    for reason, limits in cases.items():
        core = make_core(pages=20, rows=1)
        toy = make_toy(core)
        core.submit(make_submit(1, max_tokens=9))
        core.submit(make_submit(2, limits=limits))
        step_once(core, toy, now_s=4.9)
        assert 2 in core.requests
        step_once(core, toy, now_s=5.0)
        answers = Answers()
        answers.take(core)
        assert answers.finish == {2: reason}


def test_an_answer_goes_before_an_error_when_both_are_due_together() -> None:
    core = make_core(pages=20, rows=1)
    core.submit(make_submit(1, max_tokens=9))
    core.submit(make_submit(2, limits=Limits(9, 5.0, 5.0, 5.0)))
    core.submit(make_submit(3, limits=Limits(9, None, 5.0, 5.0)))
    step_once(core, make_toy(core), now_s=5.0)
    answers = Answers()
    answers.take(core)
    assert answers.finish == {2: Finish.MAX_TIME, 3: Finish.EXPIRED}


def test_limits_years_ahead_are_not_kept_when_their_requests_are_gone() -> None:
    live: set[RequestId] = set()
    deadlines = Deadlines(live)
    for id in range(10_000):
        live.add(RequestId(id))
        deadlines.add(RequestId(id), Limits(9, end_by_s=1e9, expire_by_s=2e9, admit_by_s=3e9))
        live.discard(RequestId(id - 10))
    assert len(deadlines) < 2000
    assert {id for id, _ in deadlines.due(4e9)} >= live


def test_counts_of_cached_tokens_are_not_kept_when_their_requests_are_gone() -> None:
    live: dict[RequestId, Request] = {}
    residency = Residency(PageAllocator(8, prefix_cache=False), HostPages(0), page_size=2)
    arithmetic = Pages(live, residency)
    for id in range(5000):
        live[RequestId(id)] = Request(make_submit(id), page_size=2)
        assert arithmetic.cached_tokens(RequestId(id)) == 0
        live.pop(RequestId(id - 10), None)
    assert len(arithmetic) < 2000


def test_a_queue_timeout_does_not_end_what_was_admitted_once() -> None:
    core = make_core(pages=20)
    toy = make_toy(core)
    core.submit(make_submit(1, limits=Limits(3, admit_by_s=5.0)))
    step_once(core, toy, now_s=4.0)
    assert run(core, toy, now_s=6.0).finish == {1: Finish.LENGTH}


def test_a_raising_step_ends_its_own_rows_and_publishes_nothing() -> None:
    core = make_core(pages=20, rows=2, budget=20)
    runner = RaisingRunner(make_toy(core), raising=[1])
    for id in (1, 2, 3):
        core.submit(make_submit(id, prompt=range(6), max_tokens=2))
    step = core.begin(0.0)
    assert step is not None
    try:
        runner.step(step.batch)
    except RuntimeError as error:
        core.fail(step, str(error), 0.0)
    assert core.residency.pages.cached_pages == 0
    answers = run(core, runner)
    assert answers.finish == {1: Finish.FAILED, 2: Finish.FAILED, 3: Finish.LENGTH}
    assert answers.tokens[3] == solo(make_submit(3, prompt=range(6), max_tokens=2))


def test_a_bad_row_ends_alone() -> None:
    class BadRow:
        def __init__(self) -> None:
            self.toy = make_toy(core)

        def step(self, batch: StepBatch) -> StepResult:
            result = dict(self.toy.step(batch).rows)
            if 2 in result:
                result[2] = RowResult(error="NaN in the logits")  # type: ignore[index]
            return StepResult(result)

    core = make_core(pages=20)
    for id in (1, 2, 3):
        core.submit(make_submit(id))
    answers = run(core, BadRow())
    assert answers.finish == {1: Finish.LENGTH, 2: Finish.FAILED, 3: Finish.LENGTH}
    assert answers.last[2].detail == "NaN in the logits"


def test_an_end_in_every_state_gives_everything_back() -> None:
    seen = set()
    for seed in range(200):
        core = make_core(pages=5, host=5, rows=3, scheduler=Erratic(ErraticOptions(seed)))
        toy = make_toy(core)
        for id in range(5):
            core.submit(make_submit(id, prompt=[id, id], max_tokens=6))
        for _ in range(seed % 9):
            step_once(core, toy)
        step = core.begin(0.0) if seed % 2 else None
        for id, request in list(core.requests.items()):
            seen.add((request.state, request.in_flight > 0))
            core.end(id, Finish.CANCELLED, 0.0)
        if step is not None:
            assert core.draining
            core.finish(step, toy.step(step.batch), 0.0)
        assert not core.has_work
        assert core.residency.pages.free_pages == 5
        assert core.residency.host.free_pages == 5
    assert seen >= {
        (State.WAITING, False),
        (State.RUNNING, False),
        (State.RUNNING, True),
        (State.SWAPPED, False),
        (State.SWAPPED, True),
    }


def test_a_full_host_store_recomputes_instead() -> None:
    core = make_core(pages=5, host=1, rows=3, scheduler=Erratic(ErraticOptions(3)))
    submits = [make_submit(id, prompt=[id] * 3, max_tokens=6) for id in range(4)]
    for submit in submits:
        core.submit(submit)
    answers = run(core, make_toy(core))
    assert all(answers.tokens[s.id] == solo(s) for s in submits)


def test_after_300_cancels_one_request_is_served() -> None:
    core = make_core(pages=5)
    toy = make_toy(core)
    for id in range(300):
        core.submit(make_submit(id))
        if id % 3:
            step_once(core, toy)
        core.end(id, Finish.CANCELLED, 0.0)
    core.submit(make_submit(300))
    assert run(core, toy).finish[300] is Finish.LENGTH
    assert core.residency.pages.free_pages == 5


def test_gauges_are_at_zero_when_the_last_request_has_ended() -> None:
    core = make_core(pages=9)
    core.submit(make_submit(1))
    run(core, make_toy(core))
    _, stats = core.take_events()
    assert (stats.running, stats.waiting, stats.swapped) == (0, 0, 0)
    assert (stats.held_pages, stats.used_slots, stats.free_pages) == (0, 0, 9)


def test_nobody_gives_back_pages_that_a_step_in_flight_touches() -> None:
    core = make_core(pages=9, host=9, prefix_cache=False)
    core.submit(make_submit(1, prompt=range(5)))
    begun = core.begin(0.0)
    assert begun is not None
    request = core.requests[1]
    residency = core.residency
    for give_back in (residency.swap_out, residency.drop, residency.release):
        with pytest.raises(AssertionError, match="a step in flight touches the pages of 1"):
            give_back(request)
        assert len(residency.pages.table(1)) == 3
        assert residency.host.free_pages == 9
    assert core._arithmetic.pages_from(1) == 0
    core.finish(begun, make_toy(core).step(begun.batch), 0.0)
    assert core._arithmetic.pages_from(1) == 3


def swap_then_resume(fails: bool) -> tuple[Core, Answers, list[StepBatch]]:
    """Request 1 (2 full pages and a half) is swapped out in step 2 and resumed in step 3."""
    swap = Eviction(Mode.SWAP, Cause.PAGES)
    plans = iter([Plan({1: 5, 2: 1}), Plan({2: 1}, {1: swap})])

    class Scripted(FCFS):
        def plan(self, snap: Snapshot) -> Plan:
            return next(plans, None) or super().plan(snap)

    core = make_core(pages=9, host=4, scheduler=Scripted(FCFSOptions()))
    toy, answers, batches = make_toy(core), Answers(), []
    core.submit(make_submit(1, prompt=range(5), max_tokens=4))
    core.submit(make_submit(2, prompt=[9], max_tokens=9))
    for number in range(20):
        step = core.begin(0.0)
        if step is None:
            break
        batches.append(step.batch)
        if fails and number == 1:
            core.fail(step, "raised", 0.0)
        else:
            core.finish(step, toy.step(step.batch), 0.0)
    answers.take(core)
    return core, answers, batches


def test_a_swapped_request_goes_on_without_computing_again() -> None:
    core, answers, batches = swap_then_resume(fails=False)
    assert answers.tokens[1] == solo(make_submit(1, prompt=range(5), max_tokens=4))
    assert answers.last[1].receipt is not None
    assert answers.last[1].receipt.recomputed_tokens == 0
    assert core.residency.host.free_pages == 4
    assert len(batches[1].swap_out) == 3


def test_resuming_copies_only_what_the_cache_has_lost() -> None:
    _, _, batches = swap_then_resume(fails=False)
    assert len(batches[2].swap_in) == 1


def test_a_step_that_raises_ends_those_it_was_swapping_out() -> None:
    core, answers, _ = swap_then_resume(fails=True)
    assert answers.finish == {1: Finish.FAILED, 2: Finish.FAILED}
    assert core.residency.host.free_pages == 4
