"""What is told of how a request was scheduled: pauses, copies, costs, tenants."""

import pytest

from schedulers.fcfs import FCFS, FCFSOptions
from schedulers.interface import Cause, Eviction, Mode, Plan, Served, Snapshot
from service import tenants
from service.core import Core
from service.messages import MAX_PAUSES, Finish, Pause, Receipt, RequestEvent
from service.outbox import merge_events
from service.pauses import Pauses
from service.tenants import ServedTokens
from tests.cores import Answers, Scripted, make_core, make_submit, make_toy

SWAP = Eviction(Mode.SWAP, Cause.PRIORITY, swap_s=0.25, recompute_s=0.5)
RECOMPUTE = Eviction(Mode.RECOMPUTE, Cause.ROWS)


def core_of(*plans: Plan, host: int = 9) -> Core:
    """Request 1 (5 tokens) and 2 (1 token) of 9 output tokens each, arrived at 1 and 2."""
    core = make_core(pages=20, host=host, scheduler=Scripted(*plans), prefix_cache=False)
    core.submit(make_submit(1, prompt=range(5), max_tokens=9))
    core.submit(make_submit(2, prompt=[9], max_tokens=9))
    return core


def drive(core: Core, steps: int = 99) -> tuple[Answers, list[RequestEvent]]:
    """A step begins every second from 10 on and takes half of one; all news of request 1."""
    toy, answers, news = make_toy(core), Answers(), []
    for now_s in range(10, 10 + steps):
        step = core.begin(float(now_s))
        if step is None:
            break
        core.finish(step, toy.step(step.batch), now_s + 0.5)
        news += [event for event in core._ledger._events.values() if event.id == 1]
        answers.take(core)
    return answers, news


BOTH, ONE_OUT = Plan({1: 5, 2: 1}), Plan({2: 1}, {1: SWAP})


def test_the_receipt_tells_each_pause_with_mode_cause_and_estimates() -> None:
    aside = Plan({2: 1})
    answers, _ = drive(core_of(BOTH, ONE_OUT, aside, aside, Plan({1: 1, 2: 1})))
    receipt = answers.receipt(1)
    assert receipt.pauses == (Pause(10.0, "swap", "priority", 3, 0.25, 0.5),)
    assert receipt.paused_s == 3.0
    assert receipt.preemptions == 1
    assert receipt.recomputed_tokens == 0
    assert receipt.queue_s == 9.0
    assert answers.receipt(2).pauses == ()
    assert answers.receipt(2).paused_s == 0.0


def test_each_copied_page_is_counted_out_and_in_for_the_request_and_all_together() -> None:
    answers, _ = drive(core_of(BOTH, ONE_OUT))
    assert answers.receipt(1).swapped_pages == 3 + 3
    assert answers.receipt(2).swapped_pages == 0
    assert answers.stats.swapped_pages == 6
    assert answers.stats.copy_s > 0


def test_with_the_host_store_full_the_pause_says_what_was_done() -> None:
    answers, _ = drive(core_of(BOTH, ONE_OUT, host=2))
    [pause] = answers.receipt(1).pauses
    assert (pause.mode, pause.cause, pause.swap_s) == ("recompute", "priority", 0.25)
    assert answers.receipt(1).swapped_pages == 0
    assert answers.receipt(1).recomputed_tokens == 5
    assert answers.stats.evictions == {"recompute priority": 1}


def test_evictions_are_counted_by_mode_and_cause() -> None:
    again = Plan({1: 1, 2: 1})
    plans = [BOTH, ONE_OUT, again, ONE_OUT, again, Plan({2: 1}, {1: RECOMPUTE})]
    answers, _ = drive(core_of(*plans))
    assert answers.stats.evictions == {"swap priority": 2, "recompute rows": 1}
    assert answers.stats.preemptions == 3


def test_pausing_and_going_on_are_news_that_take_turns() -> None:
    plans = [BOTH, ONE_OUT, Plan({1: 1, 2: 1}), Plan({2: 1}, {1: RECOMPUTE})]
    answers, news = drive(core_of(*plans))
    assert [(len(e.paused), e.resumed_s) for e in news if e.paused or e.resumed_s] == [
        (1, []),
        (0, [11.0]),
        (1, []),
        (0, [13.0]),
    ]
    assert [e.admitted for e in news].count(True) == 1
    whole = news[0]
    for event in news[1:]:
        whole = merge_events(whole, event)
    assert [pause.at_s for pause in whole.paused] == [10.0, 12.0]
    assert whole.resumed_s == [11.0, 13.0]
    assert tuple(whole.paused) == answers.receipt(1).pauses


@pytest.mark.parametrize("eviction", [SWAP, RECOMPUTE])
def test_a_pause_that_never_ended_counts_until_the_request_does(eviction: Eviction) -> None:
    core = core_of(BOTH, Plan({2: 1}, {1: eviction}), *[Plan({2: 1})] * 3)
    drive(core, steps=4)
    core.end(1, Finish.CANCELLED, 20.0)
    answers = Answers()
    answers.take(core)
    assert answers.receipt(1).paused_s == 9.0


def test_only_the_first_pauses_are_named_and_all_are_timed() -> None:
    pauses = Pauses()
    for n in range(MAX_PAUSES + 9):
        assert not pauses.end(float(n))
        pauses.begin(Pause(float(n), "swap", "pages", 1))
        assert pauses.end(n + 0.5)
    assert [pause.at_s for pause in pauses.first] == list(map(float, range(MAX_PAUSES)))
    assert pauses.total_s(1e9) == (MAX_PAUSES + 9) / 2


def test_the_receipt_counts_what_was_computed_on_the_strategys_share() -> None:
    plans = [Plan({1: 3, 2: 1}, on_share={1}), Plan({1: 2}), Plan({1: 1, 2: 1}, on_share={1})]
    answers, _ = drive(core_of(*plans))
    assert answers.receipt(1).share_tokens == 3 + 1
    assert answers.receipt(2).share_tokens == 0


def test_a_request_that_never_came_in_has_an_empty_receipt() -> None:
    core = make_core(pages=2)
    core.submit(make_submit(1, max_tokens=99))
    answers = Answers()
    answers.take(core)
    assert answers.receipt(1) == Receipt(0.0, 0, 0, 0, 0)


def test_what_a_tenant_was_served_is_shown_and_cannot_be_changed() -> None:
    seen: list[Served | None] = []

    class Looks(FCFS):
        def plan(self, snap: Snapshot) -> Plan:
            seen.append(snap.served.get("a"))
            assert snap.served.get("nobody") is None
            with pytest.raises(KeyError):
                snap.served["nobody"]
            with pytest.raises(TypeError):
                snap.served["a"] = Served()  # type: ignore[index]
            return super().plan(snap)

    core = make_core(scheduler=Looks(FCFSOptions()))
    core.submit(make_submit(1, max_tokens=3, tenant="a"))
    drive(core)
    assert seen == [None, Served(3, 1), Served(3, 2)]


def test_invented_tenants_are_forgotten_and_live_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tenants, "KEPT", 4)
    served = ServedTokens(lambda: ["live"])
    served.add("live", 5, 1)
    served.add("comes back", 0, 0)
    for n in range(51):
        served.add(f"invented {n}", 1, 0)
        if n % 2:
            served.add("comes back", 0, 1)
        view = served.settle()
        assert len(view) <= 9
    assert view["live"] == Served(5, 1)
    assert view["comes back"] == Served(0, 25)
    assert {f"invented {n}" for n in range(48, 51)} <= view.keys()
