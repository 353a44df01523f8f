"""What `shortest` promises: order by attained service, a share for the oldest, preemption
where it pays."""

from itertools import count
from typing import Any

import pytest

from bench.conformance.kit import Effort, check
from bench.simulation.choice import Choice
from schedulers.fcfs import FCFS, FCFSOptions
from schedulers.interface import Cause, Plan, Promise, Snapshot, StepCosts
from schedulers.remaining import FEW, Remaining
from schedulers.shortest import Shortest, ShortestOptions
from service.messages import Submit
from service.strategy import make_scheduler
from tests.cores import make_core, make_submit, make_toy, step_once
from tests.simulations import make_load, make_profile, run_checked
from tests.watched import Scene

COSTS = StepCosts(token_s=0.001, row_s=0.01, step_s=0.01)


def request(id: int, tokens: int = 3, answer: int = 4) -> Submit:
    return make_submit(id, [id] * tokens, max_tokens=answer)


def scene(rows: int = 1, pages: int = 200, budget: int = 20, **options: object) -> Scene:
    return Scene("shortest", options, rows=rows, pages=pages, budget=budget)


def without_share(**other: Any) -> Scene:
    """The oldest had more than their tiny share already."""
    found = scene(aged_share=1e-9, **other)
    for id in (900, 901):
        found.submit(request(id))
        while found.core.has_work:
            found.step()
    return found


def started(found: Scene) -> list[int]:
    """Runs to the end; who computed first, second, ..."""
    order: list[int] = []
    while found.core.has_work:
        order += found.step()
    return list(dict.fromkeys(order))


def test_the_shortest_prompt_goes_first_and_of_equals_the_older() -> None:
    found = without_share()
    found.submit(request(1, 9), request(2, 5), request(3, 2), request(4, 5))
    assert started(found) == [3, 2, 4, 1]


def test_a_long_prompt_that_is_being_computed_holds_up_no_shorter_one() -> None:
    found = without_share(rows=2, budget=8)
    found.step(request(1, 80))
    assert found.step(request(2, 3)) == [2, 1]
    assert found.plan.tokens == {2: 3, 1: 5}


def test_what_was_generated_counts_once_a_request_waits_again() -> None:
    found = without_share(rows=4, pages=14, eviction="recompute")
    found.step(request(1, 14, answer=10), request(2, 2, answer=24))
    while 2 in found.core.running:
        found.step()
    found.submit(request(3, 20, answer=1))
    assert 2 + 4 * found.core.requests[2].output_tokens > 20
    order = started(found)
    assert order.index(3) < order.index(2), "prompt of 2, and yet it has attained more"


def test_the_oldest_gets_its_share_while_shorter_ones_never_stop_coming() -> None:
    found = scene(aged_share=0.1)
    ids = count(2)
    found.step(request(1, 40, answer=3))
    served = 0
    while 1 in found.core.requests and not found.core.requests[1].output_tokens:
        found.submit(*(request(next(ids), 2, 1) for _ in range(3 - len(found.core.waiting))))
        served += sum(found.plan.tokens.values())
        found.step()
        assert served < 20 * 42


def test_without_a_share_the_kit_sees_a_long_one_starve() -> None:
    effort = Effort(examples=20, only=frozenset({Promise.NO_STARVATION}))
    for options, held in ({}, True), ({"aged_share": 1e-9}, False):
        report = check(
            "shortest", options, lambda o=options: make_scheduler("shortest", o), effort
        )
        assert [v.held for v in report.verdicts if v.held is not None] == [held]


@pytest.mark.parametrize("part", [0.1, 0.3])
def test_the_oldest_take_their_share_to_within_a_step_and_what_runs(part: float) -> None:
    """Long ones that always wait, beside short ones that always wait."""
    found, ids = scene(rows=3, aged_share=part, output_weight=1.0), count()
    mine = total = 0
    for _ in range(400):
        waiting = [view.prompt_tokens for view in found.core.waiting.values()]
        found.submit(*(request(next(ids), 3, 2) for _ in range(6 - waiting.count(3))))
        found.submit(*(request(next(ids), 50, 9) for _ in range(3 - waiting.count(50))))
        found.step()
        mine += sum(found.plan.tokens[request] for request in found.plan.on_share)
        total += sum(found.plan.tokens.values())
    assert mine == pytest.approx(part * total, abs=20 + 3 * 9)


@pytest.mark.parametrize(("part", "order"), [(0.9, [1, 2]), (0.1, [1, 3, 2])])
def test_one_on_the_share_comes_before_shorter_ones_while_it_has_credit(
    part: float, order: list[int]
) -> None:
    found = scene(rows=4, budget=8, aged_share=part)
    found.step(request(1, 3, answer=30))
    found.step(request(2, 80))
    assert found.plan.on_share == {2}
    assert found.step(request(3, 3)) == order


def test_the_oldest_go_first_one_at_a_time() -> None:
    found = scene(rows=9, budget=8, aged_share=1.0)
    found.submit(request(1, 3, answer=30))
    found.step()
    found.step(*(request(id, 12) for id in (2, 3, 4)))
    assert found.plan.on_share == {2}
    found.step()
    assert found.plan.on_share == {2}


def test_a_time_without_waiting_saves_up_a_step_at_most() -> None:
    found = scene(rows=4, budget=8, aged_share=0.5)
    found.submit(request(1, 3, answer=90))
    for _ in range(60):
        found.step()
    found.step(request(2, 80), request(3, 5, answer=1))
    steps = 1
    while 3 in found.core.requests:
        found.step()
        steps += 1
    assert steps <= 8, "all of 2 would take 12"


def test_one_on_the_share_gives_its_pages_last() -> None:
    found = scene(rows=4, pages=14, budget=30, eviction="recompute", aged_share=1.0)
    found.step(request(1, 4, answer=23))
    found.step(request(2, 4, answer=20))
    assert found.plan.on_share == {2}
    while not found.plan.evict:
        found.step()
    assert found.plan.evict.keys() == {1}, "though 2 is the newest"


def learn(found: Scene, lengths: list[int], ids: "count[int]") -> None:
    for length in lengths:
        found.submit(request(next(ids), 2, length))
        while found.core.has_work:
            found.step()


def test_a_short_arrival_preempts_one_that_probably_has_much_left() -> None:
    found, ids = scene(), count()
    found.core.costs = COSTS
    learn(found, [1] * 90 + [100] * FEW, ids)
    long, short = next(ids), next(ids)
    found.submit(request(long, 2, 100))
    for _ in range(20):
        found.step()
    assert found.step(request(short, 2, 1)) == [short]
    assert [how.cause for how in found.plan.evict.values()] == [Cause.ROWS]
    found.step()
    found.step(request(next(ids), 2, 1))
    assert not found.plan.evict, "once is enough"


def test_where_answers_are_alike_no_preemption_pays() -> None:
    found, ids = scene(), count()
    found.core.costs = COSTS
    learn(found, [40] * 30, ids)
    found.submit(request(next(ids), 2, 40))
    for _ in range(20):
        found.step()
        found.submit(request(next(ids), 2, 40))
    assert not any(plan.evict for plan in found.strategy.plans)


def test_few_answers_that_came_so_far_say_nothing() -> None:
    found, ids = without_share(), count()
    found.core.costs = COSTS
    learn(found, [1] * 90 + [100] * (FEW - 1), ids)
    found.submit(request(next(ids), 2, 100))
    for _ in range(20):
        found.step()
    found.step(request(next(ids), 2, 1))
    assert not found.plan.evict


def with_much_left(costs: StepCosts, **options: object) -> tuple[Scene, int]:
    """A row is taken by one that probably has 80 tokens left; the next id."""
    found, ids = scene(pages=400, budget=400, **options), count()
    found.core.costs = costs
    learn(found, [1] * 90 + [100] * FEW, ids)
    found.submit(request(next(ids), 2, 100))
    for _ in range(20):
        found.step()
    return found, next(ids)


def test_no_preemption_for_one_that_takes_nearly_as_long() -> None:
    found, id = with_much_left(StepCosts(token_s=0.02, row_s=0.01, step_s=0.01))
    found.step(request(id, 40, 1))
    assert not found.plan.evict


def test_no_preemption_for_one_that_would_have_attained_more() -> None:
    found, id = with_much_left(StepCosts(token_s=1e-6, row_s=0.01, step_s=0.01))
    found.step(request(id, 150, 1))
    assert not found.plan.evict
    found.step(request(id + 1, 50, 1))
    assert found.plan.evict


def test_one_that_runs_on_the_share_is_not_preempted() -> None:
    found, id = with_much_left(COSTS, aged_share=1.0)
    found.submit(request(id, 30, 90))
    while id not in found.core.running:
        found.step()
    found.step()
    assert found.plan.on_share == {id}
    for n in range(1, 40):
        found.step(request(id + n, 2, 1))
        assert not found.plan.evict


def test_nothing_is_preempted_that_costs_more_to_compute_again_than_it_has_left() -> None:
    found, id = with_much_left(
        StepCosts(token_s=0.05, row_s=0.01, step_s=0.01), eviction="recompute"
    )
    found.step(request(id, 1, 1))
    assert not found.plan.evict


def test_mean_completion_under_overload_is_far_below_that_of_fcfs() -> None:
    load = make_load(*((i / 4, 60 if i % 4 == 0 else 4, 5) for i in range(80)))
    profile = make_profile(pages=400)

    def mean_s(name: str) -> float:
        records = run_checked(load, profile, Choice(name, name)).records
        return sum(record.ended_s - record.at_s for record in records) / len(records)

    assert mean_s("shortest") < 0.6 * mean_s("fcfs")


@pytest.mark.parametrize(
    "options",
    [{"output_weight": 0.0}, {"aged_share": 0.0}, {"aged_share": 1.1}, {"max_preemptions": -1}],
)
def test_bad_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Shortest(ShortestOptions(**options))


class Learning(FCFS):
    """FCFS that learns lengths."""

    def __init__(self) -> None:
        super().__init__(FCFSOptions())
        self.remaining = Remaining()
        self.left: list[float] = []

    def plan(self, snap: Snapshot) -> Plan:
        self.remaining.observe(snap)
        self.left = [self.remaining.tokens(view) for view in snap.running.values()]
        return super().plan(snap)


def test_what_is_left_is_the_mean_of_answers_that_came_so_far() -> None:
    learning = Learning()
    core = make_core(scheduler=learning, pages=60, rows=1)
    toy, left = make_toy(core), []
    for id, length in enumerate([4] * FEW + [12] * FEW + [30]):
        core.submit(request(id, 2, length))
        while core.has_work:
            step_once(core, toy)
            left.append(learning.left)
    # It is seen while it runs, with 1 to 29 tokens; no answer went beyond 12.
    assert left[-29:-13] == [[7.0], [6.0], [6.0], *[[8.0]] * 4, *[[4.0]] * 8, [0.0]]
