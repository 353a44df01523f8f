"""How a plan is carried out on the pages: what was cached counts for all who join."""

from models.batch import StepBatch
from schedulers.interface import Cause, Eviction, Mode, Plan
from tests.cores import (
    Scripted,
    make_core,
    make_submit,
    make_toy,
    run,
    solo,
    step_once,
)

RECOMPUTE = Eviction(Mode.RECOMPUTE, Cause.PAGES)


def computed(batch: StepBatch | None) -> list[tuple[int, int, int]]:
    """Request, first position and tokens of each row."""
    assert batch is not None
    return [(row.request, row.start, len(row.tokens)) for row in batch.rows]


def test_a_cached_prefix_is_pinned_before_another_takes_pages() -> None:
    """Of six pages two are free; the oldest cached ones, which the second plan counts on,
    would be the first to go."""
    first, other = [7] * 4, [5] * 4
    taker = make_submit(2, [3] * 6, max_tokens=1)
    cached = make_submit(3, [*first, 1], max_tokens=1)
    plans = [Plan({0: 4}), Plan({1: 4}), Plan({2: 6, 3: 1})]
    core = make_core(pages=6, scheduler=Scripted(*plans))
    toy = make_toy(core)
    for id, prompt in enumerate((first, other)):
        core.submit(make_submit(id, prompt, max_tokens=1))
        step_once(core, toy)
    assert core.residency.pages.cached_pages == 4
    core.submit(taker)
    core.submit(cached)
    assert computed(step_once(core, toy)) == [(2, 0, 6), (3, 4, 1)]
    assert core.take_events()[1].short_rows == 0


def test_a_request_that_finds_no_page_gives_back_what_it_pinned_and_waits() -> None:
    """The plan counts three pages twice: as its victim's and as cached for the second."""
    shared = [7] * 6
    victim = make_submit(0, [*shared, 7, 7, 7], max_tokens=3)
    joins = make_submit(1, [*shared, 1, 1, 1, 1, 1], max_tokens=1)
    short = make_submit(2, [7, 7, 7, 7, 2], max_tokens=3)
    plans = [Plan({0: 9}), Plan({1: 5, 2: 1}, {0: RECOMPUTE}, on_share={1, 2})]
    core = make_core(pages=6, budget=9, scheduler=Scripted(*plans))
    toy = make_toy(core)
    core.submit(victim)
    step_once(core, toy)
    core.submit(joins)
    core.submit(short)
    assert computed(step_once(core, toy)) == [(1, 6, 5)]
    assert set(core.waiting) == {0, 2}
    assert not core.residency.pages.holds(2)
    assert core.waiting[2].computed == 0
    assert core.take_events()[1].short_rows == 1
    answers = run(core, toy)
    assert answers.tokens[2] == solo(short)
    assert answers.receipt(2).share_tokens == 0, "it was given nothing in that step"
