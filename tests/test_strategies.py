"""What strategies share: how victims give way, what a draft counts, options and names."""

from dataclasses import fields

import pytest

from schedulers.check import violations
from schedulers.draft import Draft
from schedulers.eviction import Evictions
from schedulers.fcfs import FCFS, FCFSOptions
from schedulers.interface import Cause, Eviction, Mode, Plan, Snapshot, StepCosts
from schedulers.registry import BUILT_IN, UnknownScheduler, available, find
from schedulers.running import Running
from service.strategy import BadOptions, make_scheduler
from tests.cores import make_core, make_submit, make_toy, step_once
from tests.test_schedulers import Answering
from tests.watched import Scene

RECOMPUTE = Eviction(Mode.RECOMPUTE, Cause.PAGES)


def how(way: str, costs: StepCosts, host: int = 9, shared: bool = False) -> Eviction:
    """How a victim of 9 computed tokens, 5 pages of 2, gives way; `shared`: 3 of those are
    another's too."""
    said: list[Eviction] = []

    def ask(snap: Snapshot) -> Plan:
        if 1 in snap.running:
            said.append(Evictions(way, snap)(snap.running[1]))  # type: ignore[arg-type]
        return FCFS(FCFSOptions()).plan(snap)

    core = make_core(pages=30, host=host, budget=30, scheduler=Answering(ask))
    core.costs = costs
    toy = make_toy(core)
    core.submit(make_submit(0, [7] * 6 + [0], max_tokens=9))
    step_once(core, toy)
    core.submit(make_submit(1, [7] * 6 + [1] * 3 if shared else [1] * 9, max_tokens=9))
    step_once(core, toy)
    core.begin(0.0)
    return said[-1]


def test_auto_moves_pages_where_that_costs_less_and_says_both_estimates() -> None:
    assert how("auto", StepCosts(token_s=1.0, page_s=0.5)) == Eviction(
        Mode.SWAP, Cause.PAGES, swap_s=5.0, recompute_s=9.0
    )
    assert how("auto", StepCosts(token_s=1.0, page_s=1.0)) == Eviction(
        Mode.RECOMPUTE, Cause.PAGES, swap_s=10.0, recompute_s=9.0
    )


def test_auto_counts_what_others_keep_cached() -> None:
    """All pages go out, the 2 that nobody else has come back; 3 tokens are computed again."""
    assert how("auto", StepCosts(token_s=1.0, page_s=0.5), shared=True) == Eviction(
        Mode.RECOMPUTE, Cause.PAGES, swap_s=3.5, recompute_s=3.0
    )


@pytest.mark.parametrize("costs", [StepCosts(token_s=1.0), StepCosts(page_s=9.0)])
def test_auto_tries_a_swap_while_a_cost_has_not_been_measured(costs: StepCosts) -> None:
    assert how("auto", costs) == Eviction(Mode.SWAP, Cause.PAGES)


@pytest.mark.parametrize(("way", "mode"), [("swap", Mode.SWAP), ("recompute", Mode.RECOMPUTE)])
def test_without_a_choice_there_are_no_estimates(way: str, mode: Mode) -> None:
    assert how(way, StepCosts(token_s=1.0, page_s=99.0)) == Eviction(mode, Cause.PAGES)


@pytest.mark.parametrize("way", ["swap", "auto"])
def test_a_victim_that_the_host_store_has_no_room_for_is_recomputed(way: str) -> None:
    assert how(way, StepCosts(token_s=1.0, page_s=0.1), host=4).mode is Mode.RECOMPUTE


def test_victims_of_one_step_share_the_host_store() -> None:
    said: list[Mode] = []

    def ask(snap: Snapshot) -> Plan:
        give_way = Evictions("swap", snap)
        said.extend(give_way(view).mode for view in snap.running.values())
        return FCFS(FCFSOptions()).plan(snap)

    core = make_core(pages=12, budget=30, host=5, scheduler=Answering(ask))
    for id in (0, 1):
        core.submit(make_submit(id, [id] * 6))
    step_once(core, make_toy(core))
    core.begin(0.0)
    assert said == [Mode.SWAP, Mode.RECOMPUTE]


@pytest.mark.parametrize("name", ["swap", "fair", "priority", "deadline"])
def test_the_swapped_come_back_though_nobody_waits(name: str) -> None:
    found = Scene(name, {"eviction": "swap"}, rows=3, pages=9, budget=40, host=30)
    for id in range(3):
        found.submit(make_submit(id, [id] * 3, max_tokens=9, tenant=f"t{id}"))
    swapped = 0
    while found.core.has_work:
        found.step()
        swapped += len(found.core.swapped)
        assert found.now_s < 99
    assert swapped > 0


def test_swap_computes_nothing_twice_while_the_host_store_has_room() -> None:
    found = Scene("swap", rows=6, pages=12, budget=40, host=60)
    found.submit(*(make_submit(id, [id] * 3, max_tokens=9) for id in range(8)))
    preemptions = again = swapped = 0
    while found.core.has_work:
        found.step()
        stats = found.core.take_events()[1]
        preemptions, again = preemptions + stats.preemptions, again + stats.recomputed_tokens
        swapped = stats.swapped
    assert preemptions > 0
    assert again == swapped == 0


def test_the_swapped_come_back_in_their_place_by_age() -> None:
    """Before arrivals that are younger, behind those that are older."""
    found = Scene("swap", rows=3, pages=9, budget=40, host=30)
    found.step(*(make_submit(id, [id] * 3, max_tokens=9) for id in (1, 3, 5)))
    while not found.core.swapped:
        found.step()
    [swapped] = found.core.swapped
    joined: list[int] = []
    found.submit(make_submit(2, [2] * 2, max_tokens=2), make_submit(6, [6], max_tokens=2))
    while found.core.has_work:
        apart = {*found.core.swapped, *found.core.waiting}
        joined += [id for id in found.step() if id in apart and id not in joined]
    assert swapped == 5
    assert joined == sorted(joined)
    assert {2, 5, 6} <= set(joined)


@pytest.mark.parametrize("name", ["fcfs", "swap", "fair", "priority", "cache"])
def test_nobody_joins_ahead_of_one_who_gives_way_in_that_step(name: str) -> None:
    """Though the victim's row and pages would do for it. With `deadline` and `shortest` one
    does that joins on the share."""
    found = Scene(name, rows=2, pages=8, budget=20)
    found.submit(*(make_submit(id, [id] * 3, max_tokens=12) for id in range(2)))
    found.step(make_submit(2, [2], max_tokens=12))
    while not found.plan.evict:
        found.step()
    assert found.plan.tokens.keys() | found.plan.evict.keys() == {0, 1}


def everybody(snap: Snapshot) -> Plan:
    """All that is pending, whether it is wise or not."""
    views = [*snap.running.values(), *snap.waiting.values()]
    return Plan({view.id: snap.pending(view) for view in views})


def test_a_draft_counts_what_a_victim_shares_with_one_that_joins_once() -> None:
    """The victim gives 5 of 6 pages, the first to join pins 3 of these and takes 3 more."""

    def trade(snap: Snapshot) -> Plan:
        if 1 not in snap.waiting:
            return everybody(snap)
        draft = Draft(snap)
        draft.evict(snap.running[0], RECOMPUTE)
        assert [draft.take(snap.waiting[id]) for id in (1, 2)] == [5, 0]
        plan = draft.plan()
        assert violations(snap, plan) == []
        return plan

    core = make_core(pages=6, budget=30, scheduler=Answering(trade))
    toy = make_toy(core)
    core.submit(make_submit(0, [7] * 9, max_tokens=3))
    step_once(core, toy)
    core.submit(make_submit(1, [7] * 6 + [1] * 5, max_tokens=2))
    core.submit(make_submit(2, [2] * 3))
    batch = step_once(core, toy)
    assert batch is not None
    assert [(row.request, len(row.tokens)) for row in batch.rows] == [(1, 5)]
    assert core.take_events()[1].short_rows == 0


def test_a_draft_does_not_give_away_what_one_who_joined_shares_with_a_later_victim() -> None:
    def trade(snap: Snapshot) -> Plan:
        if 1 not in snap.waiting:
            return everybody(snap)
        draft = Draft(snap)
        assert draft.take(snap.waiting[1]) == 2
        draft.evict(snap.running[0], RECOMPUTE)
        assert draft.pages == 2  # of 5, 3 are the prefix of 1
        draft.take(snap.waiting[2])
        return draft.plan()

    core = make_core(pages=6, budget=30, scheduler=Answering(trade))
    toy = make_toy(core)
    core.submit(make_submit(0, [7] * 9, max_tokens=3))
    step_once(core, toy)
    core.submit(make_submit(1, [7] * 6 + [1] * 2, max_tokens=2))
    core.submit(make_submit(2, [2] * 9, max_tokens=2))
    batch = step_once(core, toy)
    assert batch is not None
    assert [(row.request, len(row.tokens)) for row in batch.rows] == [(1, 2), (2, 4)]
    assert core.take_events()[1].short_rows == 0


def test_what_a_draft_asks_for_is_never_more_than_every_page_of_the_request() -> None:
    """It cannot tell whose prefix it is, so it fears both victims' pages: 3 + 3 + 3 of 6."""

    def trade(snap: Snapshot) -> Plan:
        draft = Draft(snap)
        if 2 not in snap.waiting:
            return everybody(snap)
        for view in snap.running.values():
            draft.evict(view, RECOMPUTE)
        assert draft.take(snap.waiting[2]) == 5
        return draft.plan()

    core = make_core(pages=6, budget=30, scheduler=Answering(trade))
    toy = make_toy(core)
    for id in (0, 1):
        core.submit(make_submit(id, [7 * id] * 6, max_tokens=2))
    step_once(core, toy)
    core.submit(make_submit(2, [7] * 6 + [1] * 5, max_tokens=2))
    batch = step_once(core, toy)
    assert batch is not None and len(batch.rows) == 1


def test_whoever_gave_way_already_is_not_asked_for_pages_again() -> None:
    def trade(snap: Snapshot) -> Plan:
        if 2 not in snap.waiting:
            return everybody(snap)
        draft = Draft(snap)
        draft.evict(snap.running[1], RECOMPUTE)
        draft.take(snap.waiting[2])
        assert draft.pages == 0
        Running(snap, draft).move(snap.running[0])
        assert draft.evicted == {0, 1}
        return draft.plan()

    core = make_core(pages=6, budget=30, scheduler=Answering(trade))
    toy = make_toy(core)
    core.submit(make_submit(0, [0] * 4, max_tokens=2))
    core.submit(make_submit(1, [1] * 8, max_tokens=2))
    step_once(core, toy)
    core.submit(make_submit(2, [2] * 8, max_tokens=2))
    batch = step_once(core, toy)
    assert batch is not None and [row.request for row in batch.rows] == [2]


def test_what_is_available_can_be_found() -> None:
    assert available().keys() >= BUILT_IN.keys()
    for name, target in available().items():
        assert find(name) is find(target)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_option_says_what_it_is(name: str) -> None:
    assert all(field.metadata["doc"].endswith(".") for field in fields(find(name).Options))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nonsense", "'nonsense' is unknown; there are: cache, deadline, fair, fcfs,"),
        (":X", "':X' is not of the form package.module:Class"),
        ("tests.cores:", "'tests.cores:' is not of the form package.module:Class"),
        ("tests.exits:X", "'tests.exits:X' cannot be loaded: No module named 'tests.exits'"),
        ("tests.cores:Answers", "'tests.cores:Answers' lacks Options, promises, plan"),
    ],
)
def test_a_name_that_leads_nowhere_is_one_clear_line(name: str, said: str) -> None:
    with pytest.raises(UnknownScheduler) as caught:
        find(name)
    assert str(caught.value).startswith(f"scheduler {said}")


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("priority", {"aged_share": 1}, "aged_share is 1.0, it must be from 0 to 0.5"),
        ("priority", {"max_preemptions": 1.5}, "max_preemptions is 1.5: Input should be a"),
        ("fair", {"weights": {"a": -1}}, "weights['a'] is -1.0, it must be above 0"),
        ("fair", {"weights": {"a": "much"}}, "weights.a is 'much': Input should be a"),
        ("fcfs", {"eviction": "drop"}, "eviction is 'drop': Input should be 'recompute', "),
    ],
)
def test_a_bad_option_is_one_line_with_its_name_and_value(
    name: str, options: dict[str, object], said: str
) -> None:
    with pytest.raises(BadOptions) as caught:
        make_scheduler(name, options)
    assert str(caught.value).startswith(f"scheduler {name!r}: {said}")
    assert "\n" not in str(caught.value)
