"""What users of other engines suffered from under load, line by line, for every strategy."""

from collections import Counter
from collections.abc import Iterator

import pytest

from models.batch import StepBatch
from models.toy import ToyRunner
from schedulers.draft import Draft
from schedulers.fcfs import FCFS, FCFSOptions
from schedulers.interface import (
    Cause,
    Eviction,
    Mode,
    Plan,
    RequestId,
    Snapshot,
    StepCosts,
)
from service.core import Core
from service.messages import Finish, Submit
from service.metrics import Metrics
from tests.cores import Answers, make_core, make_submit, make_toy, run, solo, step_once
from tests.strategies import EVERY, strategy

SWAPPING = [v for v in EVERY if v.endswith((" swap", " auto"))]
BY_AGE = [v for v in EVERY if not v.startswith(("shortest", "cache"))]  # among equals
PRIORITY = [v for v in EVERY if v.startswith("priority")]
SWAP_IS_CHEAP = StepCosts(token_s=1.0, row_s=1.0, page_s=0.001)
EVICTIONS = {mode: Eviction(mode, Cause.PAGES) for mode in Mode}

every = pytest.mark.parametrize("variant", EVERY)
by_age = pytest.mark.parametrize("variant", BY_AGE)
swapping = pytest.mark.parametrize("variant", SWAPPING)
both_modes = pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)


def crowded(variant: str, host: int = 20, pages: int = 12) -> tuple[Core, list[Submit]]:
    """A core that swaps wherever it may choose, and three times what its pool holds."""
    core = make_core(pages, host=host, rows=5, budget=12, scheduler=strategy(variant))
    core.costs = SWAP_IS_CHEAP
    submits = [make_submit(id, prompt=[id] * 4, max_tokens=9) for id in range(9)]
    for submit in submits:
        core.submit(submit)
    return core, submits


def batches(core: Core, toy: ToyRunner, answers: Answers) -> Iterator[StepBatch]:
    """Run until nobody is left, a second a step from when the last request came."""
    start_s = float(max(core.requests, default=0))
    for number in range(1000):
        if not core.has_work:
            return
        batch = step_once(core, toy, start_s + number)
        assert batch is not None, "nothing is computed though somebody is here"
        answers.take(core)
        yield batch
    raise AssertionError(f"{len(core.requests)} requests never end")


class Joins:
    """Watches who joins in each step, and who was passed over."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._look()

    def overtaken(self, batch: StepBatch) -> set[RequestId]:
        """Who waited or was swapped, before this step and after, behind a younger request
        that joined in it."""
        joined = [row.request for row in batch.rows if row.request in self._apart]
        behind = {id for id in self._apart if joined and id < max(joined)}
        passed = behind & {*self._core.waiting, *self._core.swapped}
        self._look()
        return passed

    def _look(self) -> None:
        self._apart = {*self._core.waiting, *self._core.swapped}


def scripted(plans: list[Plan]) -> FCFS:
    """These plans one after the other, then FCFS."""

    class Scripted(FCFS):
        def plan(self, snap: Snapshot) -> Plan:
            return plans.pop(0) if plans else super().plan(snap)

    return Scripted(FCFSOptions())


class Eager(FCFS):
    """Lets everybody in while there are pages for it, to where others would not go."""

    def plan(self, snap: Snapshot) -> Plan:
        draft = Draft(snap)
        for view in [*snap.running.values(), *snap.waiting.values()]:
            draft.take(view)
        return draft.plan()


# Capacity, preemption, swap


@every
def test_with_the_pool_filled_to_90_percent_every_running_request_makes_progress(
    variant: str,
) -> None:
    core, _ = crowded(variant)
    quiet: Counter[int] = Counter()
    fullest, capacity = 0, core.residency.pages.capacity
    for batch in batches(core, make_toy(core), Answers()):
        fullest = max(fullest, capacity - core.residency.pages.free_pages)
        moved = {row.request for row in batch.rows}
        quiet = Counter({id: quiet[id] + 1 for id in core.running if id not in moved})
        assert all(steps < 2 for steps in quiet.values()), f"{quiet} stand still"
    assert fullest >= 0.9 * capacity


@pytest.mark.parametrize("scarce", ["rows", "pages", "rows and pages"])
@pytest.mark.parametrize("shared", [False, True], ids=["own prompts", "one prompt"])
@pytest.mark.parametrize("host", [0, 20])
@pytest.mark.parametrize("variant", PRIORITY)
def test_a_very_urgent_request_runs_in_the_next_step_though_three_less_urgent_ones_run(
    variant: str, host: int, shared: bool, scarce: str
) -> None:
    held = 6 if shared else 9  # once all three run
    pages, rows = held if "pages" in scarce else 40, 3 if "rows" in scarce else 9
    core = make_core(pages, host=host, rows=rows, budget=20, scheduler=Eager(FCFSOptions()))
    core.costs = SWAP_IS_CHEAP
    toy, answers = make_toy(core), Answers()
    prompts = [[9 if shared else id] * 5 for id in range(4)]
    submits = [make_submit(id, prompts[id], max_tokens=6, priority=0) for id in range(3)]
    for submit in submits:
        core.submit(submit)
        step_once(core, toy, now_s=3.0)
    assert len(core.running) == 3
    core.planner.exchange(variant, strategy(variant))
    urgent = make_submit(3, prompts[3], max_tokens=3, priority=15)
    core.submit(urgent)
    batch = step_once(core, toy, now_s=3.0)
    assert batch is not None
    assert urgent.id in [row.request for row in batch.rows]
    for _ in batches(core, toy, answers):
        pass
    assert all(answers.tokens[s.id] == solo(s) for s in [*submits, urgent])
    assert sum(answers.receipt(s.id).preemptions for s in submits) > 0


@by_age
@pytest.mark.parametrize("host", [0, 5, 20])
def test_a_preempted_request_of_equal_priority_is_not_overtaken_by_later_arrivals(
    variant: str, host: int
) -> None:
    core, submits = crowded(variant, host)
    joins, answers = Joins(core), Answers()
    for batch in batches(core, make_toy(core), answers):
        assert not joins.overtaken(batch)
    assert sum(answers.receipt(s.id).preemptions for s in submits) > 0


@swapping
def test_a_host_store_too_small_for_the_victim_falls_back_to_recomputation(
    variant: str,
) -> None:
    core, submits = crowded(variant, host=1)
    answers = run(core, make_toy(core), now_s=9.0)
    pauses = [pause for s in submits for pause in answers.receipt(s.id).pauses]
    assert {pause.mode for pause in pauses if pause.pages > 1} == {"recompute"}
    assert all(answers.tokens[s.id] == solo(s) for s in submits)


def test_a_plan_that_swaps_more_than_the_host_store_takes_is_carried_out_by_recomputing() -> (
    None
):
    swap = EVICTIONS[Mode.SWAP]
    plans = [Plan({0: 1, 1: 3, 2: 2}), Plan({0: 1}, {1: swap, 2: swap})]
    core = make_core(pages=20, host=1, scheduler=scripted(plans))
    submits = [make_submit(id, [id] * (1, 3, 2)[id], max_tokens=6) for id in range(3)]
    for submit in submits:
        core.submit(submit)
    answers = run(core, make_toy(core))
    assert [answers.receipt(id).pauses[0].mode for id in (1, 2)] == ["recompute", "swap"]
    assert all(answers.tokens[s.id] == solo(s) for s in submits)
    assert answers.stats.plan_faults == 0
    metrics = Metrics("toy")
    metrics.engine.step(answers.stats)
    assert metrics.registry.get_sample_value("walkway_refused_swaps_total") == 1


@swapping
def test_with_the_host_store_full_neither_the_swapped_nor_the_arrivals_starve(
    variant: str,
) -> None:
    core = make_core(10, host=3, rows=5, budget=20, scheduler=Eager(FCFSOptions()))
    core.costs = SWAP_IS_CHEAP
    toy, answers = make_toy(core), Answers()
    for id in range(5):
        core.submit(make_submit(id, [id] * 4, max_tokens=8))
    step_once(core, toy)
    core.planner.exchange(variant, strategy(variant))
    full, ended_s = False, dict[int, float]()
    for now in range(5, 400):
        if now % 3 == 0 and now < 180:
            core.submit(make_submit(now, [now % 7] * 4, max_tokens=5 + now % 4))
        joins = Joins(core)
        batch = step_once(core, toy, float(now))
        assert batch is None or variant not in BY_AGE or not joins.overtaken(batch)
        full |= bool(core.swapped) and any(r.preemptions for r in core.waiting.values())
        answers.take(core)
        ended_s |= {id: float(now) for id in answers.finish.keys() - ended_s.keys()}
    assert full, "nobody had to be recomputed beside the swapped"
    assert not core.has_work and answers.stats.swapped == 0
    assert max(end_s - id for id, end_s in ended_s.items()) < 100


@both_modes
@pytest.mark.parametrize("later", list(Mode), ids=lambda mode: f"then_{mode.value}")
@pytest.mark.parametrize("variant", [v for v in BY_AGE if v != "static"])
def test_who_was_paused_returns_by_age_however_it_was_paused(
    variant: str, mode: Mode, later: Mode
) -> None:
    """0 runs; 1 and 2 were paused, 3 has just come; there is one row."""
    one, two = Plan({0: 1, 2: 3}, {1: EVICTIONS[mode]}), Plan({0: 1}, {2: EVICTIONS[later]})
    plans = [Plan({0: 3, 1: 3}), one, two]
    core = make_core(40, host=9, rows=2, budget=20, scheduler=scripted(plans))
    toy, joined = make_toy(core), list[int]()
    for id in range(4):
        core.submit(make_submit(id, [id] * 3, max_tokens=30 if id == 0 else 6))
    for _ in range(3):
        step_once(core, toy, now_s=4.0)
    core.planner.exchange(variant, strategy(variant))
    while len(core.requests) > 1:
        before = set(core.running)
        step_once(core, toy, now_s=4.0)
        joined += sorted(core.running.keys() - before)
    assert joined == [1, 2, 3]


@both_modes
@pytest.mark.parametrize("again", list(Mode), ids=lambda mode: f"then_{mode.value}")
def test_pausing_the_same_request_in_plan_after_plan_changes_nothing_it_says(
    mode: Mode, again: Mode
) -> None:
    paused = [Plan({0: 1}, {1: EVICTIONS[mode]}), Plan({0: 1, 1: 1})]
    resumed = [Plan({0: 1}, {1: EVICTIONS[again]}), Plan({0: 1, 1: 1})]
    plans = [Plan({0: 3, 1: 3}), *paused, *resumed, *paused]
    core = make_core(pages=20, host=9, budget=20, scheduler=scripted(plans))
    submits = [make_submit(id, [id] * 3, max_tokens=12) for id in (0, 1)]
    for submit in submits:
        core.submit(submit)
    answers = run(core, make_toy(core))
    assert answers.stats.refused_swaps == 0
    assert answers.receipt(1).preemptions == 3
    assert all(answers.tokens[s.id] == solo(s) for s in submits)


@both_modes
@pytest.mark.parametrize("again", list(Mode), ids=lambda mode: f"then_{mode.value}")
def test_pausing_a_request_that_is_paused_already_is_no_plan_and_does_nothing(
    mode: Mode, again: Mode
) -> None:
    twice = [Plan({0: 1}, {1: EVICTIONS[mode]}), Plan({0: 1}, {1: EVICTIONS[again]})]
    plans = [Plan({0: 3, 1: 3}), *twice]
    core = make_core(20, host=9, budget=20, scheduler=scripted(plans), strict=False)
    submits = [make_submit(id, [id] * 3, max_tokens=12) for id in (0, 1)]
    for submit in submits:
        core.submit(submit)
    answers = run(core, make_toy(core))
    assert answers.stats.plan_faults == 1
    assert answers.receipt(1).preemptions == 1
    assert all(answers.tokens[s.id] == solo(s) for s in submits)


@every
def test_max_tokens_of_the_whole_context_blocks_nobody_behind_it(variant: str) -> None:
    core = make_core(pages=10, rows=2, scheduler=strategy(variant))
    core.submit(make_submit(1, prompt=[1, 2], max_tokens=19, deadline_s=9.0))
    core.submit(make_submit(2, prompt=[1], max_tokens=1))
    core.costs = StepCosts(token_s=1.0, row_s=1.0)
    batch = step_once(core, make_toy(core), now_s=2.0)
    assert batch is not None
    assert {row.request for row in batch.rows} == {1, 2}


@every
def test_a_prompt_larger_than_the_pool_is_refused_at_once_and_the_next_is_served(
    variant: str,
) -> None:
    core = make_core(pages=3, scheduler=strategy(variant))
    core.submit(make_submit(1, prompt=range(7), max_tokens=1))
    answers = Answers()
    answers.take(core)
    assert answers.finish == {1: Finish.FAILED}
    core.submit(make_submit(2, prompt=range(6), max_tokens=1))
    assert run(core, make_toy(core), now_s=2.0).finish == {2: Finish.LENGTH}


@every
def test_recomputed_and_swapped_tokens_are_counted_per_request_and_in_the_metrics(
    variant: str,
) -> None:
    core, submits = crowded(variant)
    computed: Counter[tuple[int, int]] = Counter()
    moved, answers, metrics = 0, Answers(), Metrics("toy")
    for batch in batches(core, make_toy(core), answers):
        moved += len(batch.swap_out) + len(batch.swap_in)
        for row in batch.rows:
            computed.update((row.request, row.start + i) for i in range(len(row.tokens)))
    again = Counter(dict.fromkeys(range(9), 0))
    for (id, _), times in computed.items():
        again[id] += times - 1
    receipts = {s.id: answers.receipt(s.id) for s in submits}
    assert {id: r.recomputed_tokens for id, r in receipts.items()} == dict(again)
    assert sum(r.swapped_pages for r in receipts.values()) == moved
    assert sum(r.preemptions for r in receipts.values()) == answers.stats.preemptions > 0
    assert moved > 0 or again.total() > 0
    metrics.engine.step(answers.stats)
    for name, value in {
        "recomputed_tokens": again.total(),
        "swapped_pages": moved,
    }.items():
        assert metrics.registry.get_sample_value(f"walkway_{name}_total") == value


@every
def test_a_preempted_request_is_in_exactly_one_place(variant: str) -> None:
    core, _ = crowded(variant, host=5)
    paused = set[RequestId]()
    for _ in batches(core, make_toy(core), Answers()):
        places = Counter([*core.waiting, *core.running, *core.swapped, *core.draining])
        assert places == Counter(list(core.requests))
        paused |= {id for id, r in core.requests.items() if r.preemptions}
    assert paused


@both_modes
def test_a_paused_request_holds_no_page_of_the_pool_and_others_have_them_in_that_step(
    mode: Mode,
) -> None:
    plans = [Plan({0: 6}), Plan({1: 8}, {0: EVICTIONS[mode]})]
    core = make_core(pages=4, host=4, scheduler=scripted(plans))
    toy = make_toy(core)
    submits = [make_submit(0, [0] * 6, max_tokens=3), make_submit(1, [1] * 8, max_tokens=1)]
    for submit in submits:
        core.submit(submit)
    step_once(core, toy)
    step = core.begin(0.0)
    assert step is not None
    assert core.residency.held_pages(RequestId(0)) == 0
    assert core.residency.host.holds(0) is (mode is Mode.SWAP)
    core.finish(step, toy.step(step.batch), 0.0)
    assert core.residency.pages.free_pages == core.residency.pages.capacity
    answers = run(core, toy)
    assert answers.tokens == {s.id: solo(s) for s in submits}


def test_a_swapped_request_may_return_into_the_pages_of_one_that_is_swapped_in_that_step() -> (
    None
):
    swap = EVICTIONS[Mode.SWAP]
    plans = [Plan({0: 6}), Plan({1: 6}, {0: swap}), Plan({0: 1}, {1: swap})]
    core = make_core(pages=4, host=6, scheduler=scripted(plans), prefix_cache=False)
    toy, moved = make_toy(core), list[StepBatch]()
    submits = [make_submit(id, [id] * 6, max_tokens=3) for id in (0, 1)]
    for submit in submits:
        core.submit(submit)
    for _ in range(3):
        batch = step_once(core, toy)
        assert batch is not None
        moved.append(batch)
    left, entered = ({page for page, _ in moved[2].swap_out}, {p for _, p in moved[2].swap_in})
    assert left & entered
    assert run(core, toy).tokens == {s.id: solo(s) for s in submits}


# Prefill against decode


def served_beside(variant: str, prompts: int, prompt_tokens: int) -> list[StepBatch]:
    """The steps of a request that runs when so many prompts arrive; each step's budget is
    32 tokens."""
    core = make_core(
        pages=2000, page_size=16, rows=64, budget=32, scheduler=strategy(variant), audit=None
    )
    core.costs = SWAP_IS_CHEAP
    toy, found = make_toy(core), list[StepBatch]()
    core.submit(make_submit(0, [7], max_tokens=40))
    step_once(core, toy, now_s=0.0)
    for id in range(1, prompts + 1):
        core.submit(make_submit(id, [id] * prompt_tokens, 1, arrival_s=1.0, tenant=str(id % 3)))
    while 0 in core.requests:
        batch = step_once(core, toy, now_s=1.0 + len(found))
        assert batch is not None
        found.append(batch)
    return found


@every
def test_the_gap_between_tokens_is_bounded_by_the_step_budget_while_300_long_prompts_come(
    variant: str,
) -> None:
    steps = served_beside(variant, prompts=300, prompt_tokens=500)
    assert len(steps) == 39
    assert all(0 in [row.request for row in batch.rows] for batch in steps)
    assert all(sum(len(row.tokens) for row in batch.rows) <= 32 for batch in steps)


@every
def test_a_steps_stall_is_the_chunks_and_does_not_grow_with_the_longest_prompt(
    variant: str,
) -> None:
    def longest(prompt_tokens: int) -> int:
        steps = served_beside(variant, 3, prompt_tokens)
        return max(sum(len(row.tokens) for row in batch.rows) for batch in steps)

    assert longest(300) == longest(9000)
