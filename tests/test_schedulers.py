"""The rules of plans, the two strategies that are here, and what a bad one may do."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from schedulers.check import violations
from schedulers.fcfs import FCFS, FCFSOptions
from schedulers.interface import (
    ALWAYS,
    Cause,
    Eviction,
    Mode,
    Plan,
    Promise,
    Refusal,
    Scheduler,
    Snapshot,
)
from schedulers.queue import WaitingQueue
from schedulers.registry import BUILT_IN, UnknownScheduler, find
from schedulers.static import Static, StaticOptions
from service.messages import Finish
from service.planner import BrokenScheduler
from service.strategy import BadOptions, make_scheduler
from tests.cores import make_core, make_submit, make_toy, run, solo, step_once

EVICTION = Eviction(Mode.RECOMPUTE, Cause.PAGES)


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Nothing to choose."""


class Answering:
    """Answers with what a function makes of the snapshot."""

    Options: ClassVar[type[NoOptions]] = NoOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS

    def __init__(self, answer: Callable[[Snapshot], Plan]) -> None:
        self._answer = answer

    def plan(self, snap: Snapshot) -> Plan:
        return self._answer(snap)


def judged(
    answer: Callable[[Snapshot], Plan], running: int = 2, pages: int = 9, budget: int = 9
) -> list[str]:
    """What is wrong with a plan when requests 0.. run (3 tokens computed, 1 pending) and
    two more wait (3 pending) for one of 4 rows."""
    found: list[str] = []

    def ask(snap: Snapshot) -> Plan:
        if len(snap.running) < running:
            return Plan(dict.fromkeys(snap.waiting, 3), {})
        plan = answer(snap)
        found.extend(violations(snap, plan))
        return FCFS(FCFSOptions()).plan(snap)

    core = make_core(pages=pages, budget=budget, scheduler=Answering(ask))
    toy = make_toy(core)
    for id in range(running):
        core.submit(make_submit(id, prompt=[id] * 3))
    step_once(core, toy)
    for id in (running, running + 1):
        core.submit(make_submit(id, prompt=[id] * 3))
    core.begin(0.0)
    return found


def test_a_legal_plan_has_no_violations() -> None:
    assert judged(lambda snap: Plan({0: 1, 2: 3}, {1: EVICTION}, {3: Refusal(1.0)}, {2})) == []


@pytest.mark.parametrize(
    ("plan", "word"),
    [
        (Plan({9: 1}), "neither waits"),
        (Plan({0: 1}, {2: EVICTION}), "does not run"),
        (Plan({0: 1}, {}, {1: Refusal(1.0)}), "does not wait"),
        (Plan({0: 2}), "1 pending"),
        (Plan({0: 1.0}), "no int"),
        (Plan({0: 1}, {1: "recompute"}), "Eviction"),
        (Plan({0: 1}, {1: Eviction("swap", Cause.PAGES)}), "Eviction"),
        (Plan({0: 1}, {1: Eviction(Mode.SWAP, "pages")}), "Eviction"),
        (Plan({0: 1}, {1: replace(EVICTION, swap_s=np.float64(1.0))}), "Eviction"),
        (Plan({0: 1}, {1: replace(EVICTION, recompute_s="1")}), "Eviction"),
        (Plan({0: 1}, {}, {2: 1.0}), "Refusal"),
        (Plan({0: 1}, {}, {2: Refusal(None)}), "Refusal"),
        (Plan({0: 1}, {}, {2: Refusal(np.float32(1.0))}), "Refusal"),
        (Plan({0: 0}), "1 pending"),
        (Plan({2: 4}), "3 pending"),
        (Plan({0: 1}, {0: EVICTION}), "both computes and is evicted"),
        (Plan({2: 1}, {}, {2: Refusal(1.0)}), "both computes and is refused"),
        (Plan(), "nothing is computed"),
        (Plan({0: 1}, on_share={1}), "1 is on the share and computes nothing"),
        (Plan({0: 1}, {1: EVICTION}, on_share={1}), "1 is on the share and computes nothing"),
        (Plan({0: 1}, on_share=[0]), "on_share is [0], which is no set"),
    ],
)
def test_each_rule_is_seen_broken(plan: Plan, word: str) -> None:
    [fault] = judged(lambda snap: plan)
    assert word in fault


def test_more_tokens_rows_or_pages_than_there_are_is_a_violation() -> None:
    [fault] = judged(lambda snap: Plan({2: 3, 3: 3}), pages=7)
    assert fault == "4 pages exceed the 3 that are free or given back"
    [fault] = judged(lambda snap: Plan({0: 1, 2: 3, 3: 3}), budget=6)
    assert fault == "7 tokens exceed the budget of 6"
    [fault] = judged(lambda snap: Plan({3: 1, 4: 1}), running=3, pages=11)
    assert fault == "5 rows exceed the limit of 4"


def test_a_refusal_of_a_request_with_output_is_a_violation() -> None:
    def evict_then_refuse(snap: Snapshot) -> Plan:
        if 0 in snap.running and snap.running[0].output_tokens:
            return Plan({1: 1}, {0: EVICTION})
        if 0 in snap.waiting and snap.waiting[0].output_tokens:
            found.extend(violations(snap, Plan({1: 1}, {}, {0: Refusal(1.0)})))
        return FCFS(FCFSOptions()).plan(snap)

    found: list[str] = []
    core = make_core(pages=20, scheduler=Answering(evict_then_refuse))
    for id in (0, 1):
        core.submit(make_submit(id, max_tokens=9))
    toy = make_toy(core)
    for _ in range(3):
        step_once(core, toy)
    assert found == ["refusal of 0, which has output already"]


def test_a_refused_request_ends_refused_with_the_estimate() -> None:
    plans = iter([Plan({0: 3}, {}, {1: Refusal(2.5)})])
    core = make_core(scheduler=Answering(lambda snap: next(plans)))
    core.submit(make_submit(0, max_tokens=1))
    core.submit(make_submit(1))
    answers = run(core, make_toy(core))
    assert answers.finish[1] is Finish.REFUSED
    assert "2.500 s" in answers.last[1].detail


def test_fcfs_computes_decode_rows_before_prefill_chunks() -> None:
    core = make_core(pages=30, budget=5)
    toy = make_toy(core)
    for id in range(2):
        core.submit(make_submit(id, prompt=[1, 2], max_tokens=9))
    step_once(core, toy)
    core.submit(make_submit(2, prompt=range(10)))
    batch = step_once(core, toy)
    assert batch is not None
    assert [(row.request, len(row.tokens)) for row in batch.rows] == [(0, 1), (1, 1), (2, 3)]


def test_fcfs_bounds_the_gap_between_tokens_by_the_step_budget() -> None:
    """However long the prompts that arrive, a running request gets a token every step."""
    core = make_core(pages=200, rows=20, budget=6)
    toy = make_toy(core)
    core.submit(make_submit(0, prompt=[1], max_tokens=30))
    step_once(core, toy)
    for id in range(1, 9):
        core.submit(make_submit(id, prompt=range(40), max_tokens=1))
    for _ in range(25):
        batch = step_once(core, toy)
        assert batch is not None
        assert batch.rows[0].request == 0
        assert sum(len(row.tokens) for row in batch.rows) <= 6


def test_fcfs_lets_the_newest_give_way_and_the_oldest_always_move() -> None:
    core = make_core(pages=5, rows=3, budget=12)
    toy = make_toy(core)
    for id in range(3):
        core.submit(make_submit(id, prompt=[id] * 2, max_tokens=7))
    order = []
    while core.has_work:
        oldest = min(core.requests)
        batch = step_once(core, toy)
        assert batch is not None
        assert oldest in [row.request for row in batch.rows]
        order += [e.id for e in core.take_events()[0] if e.finish]
    assert order == [0, 1, 2]


def test_an_admission_leaves_the_watermark_and_a_page_for_each_that_runs() -> None:
    for pages, admitted in ((8, [0, 1]), (9, [0, 1]), (10, [0, 1, 2])):
        core = make_core(pages=pages, watermark=2, budget=20)
        for id in range(3):
            core.submit(make_submit(id, prompt=[1, 2, 3, id], max_tokens=2))
        batch = step_once(core, make_toy(core))
        assert batch is not None
        assert [row.request for row in batch.rows] == admitted


def test_a_prompt_joins_when_all_of_it_fits_and_a_lone_one_at_once() -> None:
    """One that joined chunk by chunk as pages came free would be evicted again and again."""
    core = make_core(pages=12, watermark=0, budget=6)
    core.submit(make_submit(0, prompt=[1, 2], max_tokens=3))
    toy = make_toy(core)
    step_once(core, toy)
    core.submit(make_submit(1, prompt=range(22), max_tokens=1))  # 11 pages
    batch = step_once(core, toy)
    assert batch is not None
    assert [row.request for row in batch.rows] == [0]
    step_once(core, toy)
    batch = step_once(core, toy)
    assert batch is not None
    assert [(row.request, len(row.tokens)) for row in batch.rows] == [(1, 6)]


def test_under_pressure_little_is_computed_twice() -> None:
    """Admitted on pages for a chunk alone, a third of all tokens were (a measured fault)."""
    core = make_core(pages=60, watermark=2, budget=24, rows=16, audit=None)
    for id in range(40):
        core.submit(make_submit(id, prompt=range(id, id + 12), max_tokens=12))
    answers = run(core, make_toy(core))
    assert len(answers.tokens) == 40
    assert sum(event.receipt.recomputed_tokens for event in answers.last.values()) < 100


def test_static_lets_nobody_join_until_the_batch_has_ended() -> None:
    core = make_core(pages=40, rows=2, budget=20, scheduler=Static(StaticOptions()))
    toy = make_toy(core)
    for id, tokens in enumerate([1, 5, 1, 1]):
        core.submit(make_submit(id, max_tokens=tokens))
    batches = []
    while core.has_work:
        batch = step_once(core, toy)
        assert batch is not None
        batches.append([row.request for row in batch.rows])
    assert batches == [[0, 1], [1], [1], [1], [1], [2, 3]]


def illegal(snap: Snapshot) -> Plan:
    return Plan({next(iter(snap.waiting), 77): 99})


def raising(snap: Snapshot) -> Plan:
    raise ZeroDivisionError("in a plug-in")


def of_no_type(snap: Snapshot) -> Plan:
    return None  # type: ignore[return-value]


@pytest.mark.parametrize("bad", [illegal, raising, of_no_type])
def test_a_bad_plan_is_replaced_and_after_three_in_a_row_so_is_the_strategy(
    bad: Callable[[Snapshot], Plan],
) -> None:
    reports: list[str] = []
    core = make_core(
        scheduler=Answering(bad),
        strict=False,
        report=lambda event, **why: reports.append(event),
    )
    submit = make_submit(1, max_tokens=8)
    core.submit(submit)
    answers = run(core, make_toy(core))
    assert answers.tokens[1] == solo(submit)
    assert reports == ["scheduler fault"] * 3 + ["scheduler replaced"]
    assert core.planner.name == "fcfs"


def test_faults_that_never_end_are_all_counted_and_ever_more_seldom_told() -> None:
    told: list[str] = []
    core = make_core(
        pages=20, strict=False, report=lambda event, *, scheduler, fault: told.append(fault)
    )
    ticks = iter(range(0, 1000, 10))
    core.planner._clock = lambda: float(next(ticks))
    core.submit(make_submit(1, max_tokens=20))
    run(core, make_toy(core))
    assert core.planner.all_faults == 20
    first = (1, 2, 3)  # then FCFS takes over, which is as late
    late = [line for line in told if line.startswith("a plan took")]
    assert [line.split("(")[1] for line in late] == [
        f"fault {n})" for n in (*first, *first, 4, 8, 16)
    ]


def test_a_late_plan_is_used_and_counted() -> None:
    core = make_core(strict=False)
    ticks = iter(range(0, 1000, 10))
    core.planner._clock = lambda: float(next(ticks))
    core.submit(make_submit(1, max_tokens=2))
    step_once(core, make_toy(core))
    _, stats = core.take_events()
    assert stats.plan_faults == 1
    assert stats.short_rows == 0


def test_a_built_in_strategy_that_is_late_is_told_and_stays() -> None:
    """The machine stood still; FCFS would have been as late."""
    core = make_core(strict=False, scheduler=find("static")(StaticOptions()))
    core.planner.name = "static"
    ticks = iter(range(0, 1000, 10))
    core.planner._clock = lambda: float(next(ticks))
    core.submit(make_submit(1, max_tokens=9))
    run(core, make_toy(core))
    assert core.planner.all_faults == 9
    assert (core.planner.name, core.planner.replaces) == ("static", "")


def test_a_strategy_replaced_for_lateness_leaves_a_rebuild_behind() -> None:
    seen: list[bool] = []

    def look(snap: Snapshot) -> Plan:
        seen.append(snap.rebuild)
        return FCFS(FCFSOptions()).plan(snap)

    core = make_core(strict=False, scheduler=Answering(look))
    ticks = iter(range(0, 1000, 10))
    core.planner._clock = lambda: float(next(ticks))
    core.submit(make_submit(1, max_tokens=9))
    toy = make_toy(core)
    for _ in range(3):
        step_once(core, toy)
    assert seen == [True, False, False]
    assert core.planner.name == "fcfs"
    assert core.planner.rebuild


def test_a_plug_in_that_exits_when_it_is_loaded_or_made_is_an_error_with_its_name() -> None:
    with pytest.raises(UnknownScheduler, match=r"exits_on_import:Here' cannot be loaded"):
        find("tests.exits_on_import:Here")
    with pytest.raises(BadOptions, match=r"MadeByExiting' cannot be made: SystemExit"):
        make_scheduler("tests.misbehaving:MadeByExiting", {})


def test_checking_turns_a_violation_into_an_error() -> None:
    core = make_core(scheduler=Answering(illegal))
    core.submit(make_submit(1))
    with pytest.raises(BrokenScheduler, match="99 tokens for 1"):
        core.begin(0.0)


def test_a_strategy_cannot_change_what_it_is_shown_when_checking_is_on() -> None:
    def meddle(snap: Snapshot) -> Plan:
        snap.waiting[1].priority = 15  # type: ignore[index, misc]
        return Plan()

    core = make_core(scheduler=Answering(meddle))
    core.submit(make_submit(1))
    with pytest.raises(AttributeError):
        core.begin(0.0)


def test_a_waiting_queue_keeps_itself_by_what_changed() -> None:
    queue = WaitingQueue(key=lambda view: -view.priority)
    seen: list[tuple[list[int], list[int]]] = []

    def look(snap: Snapshot) -> Plan:
        queue.sync(snap)
        fresh = WaitingQueue(key=lambda view: -view.priority)
        fresh.sync(replace(snap, rebuild=True))
        kept, read = ([view.id for view in q.candidates(snap)] for q in (queue, fresh))
        seen.append((kept, read))
        return FCFS(FCFSOptions()).plan(snap)

    core = make_core(pages=5, rows=3, scheduler=Answering(look))
    toy = make_toy(core)
    for id in range(60):
        core.submit(make_submit(id, prompt=[id % 3], priority=id * 7 % 5, max_tokens=id % 6))
        core.end(id * 5 // 6 - 1, Finish.CANCELLED, 0.0)
        if id % 2:
            step_once(core, toy)
    assert all(kept == fresh for kept, fresh in seen)
    assert any(len(kept) > 3 for kept, _ in seen)


def test_lanes_hold_swapped_and_waiting_alike_in_order_of_key() -> None:
    swap = Eviction(Mode.SWAP, Cause.PAGES)
    queue = WaitingQueue(key=lambda view: -view.priority, lane=lambda view: view.tenant)
    seen: dict[str, list[int]] = {}

    def answer(snap: Snapshot) -> Plan:
        queue.sync(snap)
        if not snap.running and not snap.swapped:
            return Plan({0: 3, 1: 3})
        if snap.swapped:
            seen.update({t: [v.id for v in queue.candidates(snap, t)] for t in "ab"})
            assert queue.lanes == {"a", "b"}
            return FCFS(FCFSOptions()).plan(snap)
        return Plan({0: 1}, {1: swap})

    core = make_core(pages=20, host=9, scheduler=Answering(answer))
    for id, (tenant, priority) in enumerate(["a0", "a5", "b1", "a9", "b7", "a1"]):
        core.submit(make_submit(id, [id] * 3, tenant=tenant, priority=int(priority)))
    toy = make_toy(core)
    for _ in range(3):
        step_once(core, toy)
    assert seen == {"a": [3, 1, 5], "b": [4, 2]}


def test_strategies_are_found_by_name_and_by_path() -> None:
    assert find("fcfs") is FCFS
    assert find("tests.test_schedulers:Answering") is Answering
    for name in BUILT_IN:
        built: Scheduler = find(name)(find(name).Options())
        assert built.promises >= ALWAYS


@pytest.mark.parametrize("name", ["nonsense", "tests.nothing:Here", "tests.cores:Answers"])
def test_a_strategy_that_is_none_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnknownScheduler, match=name):
        find(name)
