"""The default model under strategies that pause: to the bit what each request says alone, in
each dtype."""

from functools import cache
from itertools import cycle

import pytest

from models.batch import Sampling, StepBatch, TokenLogprob
from schedulers.fcfs import FCFS, FCFSOptions
from schedulers.interface import (
    Cause,
    Eviction,
    Mode,
    Plan,
    RequestId,
    Scheduler,
    Snapshot,
    StepCosts,
)
from service.core import Core
from service.messages import Limits, Receipt, Submit
from service.packing import unpack
from tests.cores import make_core, step_once
from tests.erratic import Erratic, ErraticOptions
from tests.strategies import EVERY, strategy
from tests.test_default_model import prompts, runner

DTYPES = ("fp32", "bf16")
TOKENS = 12
PAGE_SIZE = 16
WHICH = (3, 5, 8, 12, 15)  # prompts of 6 to 30 tokens
SAMPLED = Sampling(temperature=1.0, seed=11, logprobs=2, prompt_logprobs=1)
GREEDY = Sampling(logprobs=2, prompt_logprobs=1)
# A cost of pages for which `auto` swaps what is long and recomputes what is short.
COSTS = StepCosts(token_s=0.001, row_s=0.01, page_s=0.004)

# Tokens with their log-probabilities and alternatives, those of the prompt first: equal only
# when the logits behind them are equal to the bit.
Said = list[TokenLogprob]


def wanted(i: int) -> Submit:
    sampling = SAMPLED if i % 2 else GREEDY
    return Submit(
        i,
        prompts()[i],
        sampling,
        Limits(TOKENS),
        arrival_s=0.0,
        priority=i % 3,
        tenant="ab"[i % 2],
        deadline_s=1000.0 if i % 4 else None,
    )


def make_engine(pages: int, host: int, scheduler: Scheduler, prefix_cache: bool = True) -> Core:
    core = make_core(
        pages,
        PAGE_SIZE,
        host,
        rows=6,
        budget=24,
        scheduler=scheduler,
        prefix_cache=prefix_cache,
    )
    core.costs = COSTS
    return core


def said(
    core: Core, dtype: str, variants: tuple[str, ...] = ()
) -> tuple[dict[int, Said], list[Receipt]]:
    """What everybody says to the end, and what was done to them; each of `variants` plans
    three steps, then the next does."""
    model, turns = runner(dtype).runner, cycle(variants)
    found: dict[int, Said] = {id: [] for id in core.requests}
    receipts: list[Receipt] = []
    for number in range(400):
        if not core.has_work:
            break
        if variants and number % 3 == 0:
            turn = next(turns)
            core.planner.exchange(turn, strategy(turn))
        step_once(core, model, now_s=0.01 * number)
        for event in core.take_events()[0]:
            found[event.id] += unpack(event.prompt_logprobs + event.logprobs)
            receipts += [event.receipt] if event.receipt else []
    assert not core.has_work
    assert core.residency.pages.free_pages == core.residency.pages.capacity
    assert core.residency.host.free_pages == core.residency.host.num_pages
    return found, receipts


@cache
def alone(i: int, dtype: str) -> Said:
    core = make_engine(pages=10, host=0, scheduler=FCFS(FCFSOptions()))
    core.submit(wanted(i))
    return said(core, dtype)[0][i]


def assert_as_alone(found: dict[int, Said], dtype: str) -> None:
    """To the bit, or, where products depend on the batch, in tokens."""
    for i, numbers in found.items():
        if runner(dtype).batch_invariant:
            assert numbers == alone(i, dtype), f"request {i}"
        assert [n.token for n in numbers] == [n.token for n in alone(i, dtype)], f"request {i}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_paused_at_random_steps_in_both_ways_a_request_says_what_it_says_alone(
    dtype: str,
) -> None:
    erratic = Erratic(ErraticOptions(seed=3, evicts=0.1))
    core = make_engine(pages=8, host=6, scheduler=erratic)
    for i in WHICH:
        core.submit(wanted(i))
    found, receipts = said(core, dtype)
    assert_as_alone(found, dtype)
    assert sum(receipt.recomputed_tokens for receipt in receipts) > 0
    assert sum(receipt.swapped_pages for receipt in receipts) > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_with_a_quarter_of_the_pages_every_strategy_in_turn_changes_no_answer(
    dtype: str,
) -> None:
    load = sum(-(-(len(prompts()[i]) + TOKENS - 1) // PAGE_SIZE) for i in WHICH)
    core = make_engine(pages=load // 4, host=6, scheduler=FCFS(FCFSOptions()))
    for i in WHICH:
        core.submit(wanted(i))
    found, receipts = said(core, dtype, tuple(EVERY))
    assert_as_alone(found, dtype)
    assert sum(receipt.preemptions for receipt in receipts) > 0
    assert sum(receipt.swapped_pages for receipt in receipts) > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_swapped_out_and_into_pages_of_other_numbers_the_logits_are_the_same_bits(
    dtype: str,
) -> None:
    """`a` gives its pages to `b`, returns beside it, goes again, and returns into the pages
    that `b` is copied from in that very step. Without a prefix cache all of it is copied."""
    a, b = RequestId(5), RequestId(3)
    swap = Eviction(Mode.SWAP, Cause.PAGES)
    plans = [Plan({a: 24}), Plan({a: 6}), Plan({b: 20}, {a: swap}), Plan({a: 1, b: 1})]
    plans += [Plan({b: 1}, {a: swap}), Plan({a: 1}, {b: swap})]

    class Scripted(FCFS):
        def plan(self, snap: Snapshot) -> Plan:
            return plans.pop(0) if plans else super().plan(snap)

    core = make_engine(6, host=6, scheduler=Scripted(FCFSOptions()), prefix_cache=False)
    core.submit(wanted(a))
    core.submit(wanted(b))
    steps = [step_once(core, runner(dtype).runner) for _ in range(6)]
    assert pages_of(steps[1], a).isdisjoint(pages_of(steps[3], a))
    assert pages_of(steps[4], b) & pages_of(steps[5], a)
    found, receipts = said(core, dtype)
    assert_as_alone(found, dtype)
    assert [receipt.swapped_pages > 0 for receipt in receipts] == [True, True]


def pages_of(batch: StepBatch | None, request: RequestId) -> set[int]:
    """Its page table in a step; nobody changes it once it was given back."""
    assert batch is not None
    [pages] = [row.pages for row in batch.rows if row.request == request]
    return set(pages)
