"""Traces, workloads and rules as loads; blocks as page keys."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.simulation.catalogue import find_profile
from bench.simulation.demand import Demand, Load, Rules, parse_shares
from bench.simulation.engine import simulate
from bench.simulation.keys import BlockKeys
from bench.simulation.loads import BadLoad, Cut, Repeat, trace_load, workload_load
from bench.simulation.mooncake import read_mooncake
from bench.trace import SAMPLE, Arrival
from tests.simulations import (
    COSTS,
    FCFS,
    dressed,
    make_profile,
    run_checked,
)

MOONCAKE = SAMPLE.with_name("mooncake_conversation_sample.jsonl")


def test_an_azure_trace_is_cut_and_scaled() -> None:
    profile = find_profile("h100-8b")
    whole = trace_load("sample", Cut(), Rules(), profile)
    assert len(whole.demands) == 60 and not whole.shares_prefixes
    first = whole.demands[0].arrival
    assert (first.at_s, first.prompt_tokens, first.output_tokens) == (0.0, 374, 44)
    cut = Cut(start_s=2.0, seconds=20.0, requests=5, speedup=4.0, tokens=0.5)
    arrivals = [
        demand.arrival for demand in trace_load("sample", cut, Rules(), profile).demands
    ]
    left = [demand.arrival for demand in whole.demands if demand.arrival.at_s >= 2.0][:5]
    assert [a.at_s for a in arrivals] == pytest.approx([(a.at_s - 2.0) / 4 for a in left])
    assert [a.prompt_tokens for a in arrivals] == [round(a.prompt_tokens / 2) for a in left]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            '{"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [0]}',
            ":2: 512",
        ),
        ('{"timestamp": 0}', ":2: Object missing"),
        ("nonsense", ":2: JSON is malformed"),
    ],
)
def test_a_bad_mooncake_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    good = '{"timestamp": 27482, "input_length": 600, "output_length": 52, "hash_ids": [46, 7]}'
    path = tmp_path / "trace.jsonl"
    path.write_text(f"{good}\n{line}\n")
    with pytest.raises(BadLoad) as error:
        trace_load(str(path), Cut(), Rules(), find_profile("h100-8b"))
    assert f"{path}{said}" in str(error.value)


def test_a_mooncake_trace_starts_at_its_earliest_and_keeps_its_blocks(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"timestamp": 3750, "input_length": 5, "output_length": 1, "hash_ids": [8]}\n'
        '{"timestamp": 2500, "input_length": 600, "output_length": 52, "hash_ids": [46, 7]}\n'
    )
    assert read_mooncake(path) == [Arrival(0.0, 600, 52, (46, 7)), Arrival(1.25, 5, 1, (8,))]


def test_blocks_that_a_page_does_not_divide_or_that_would_be_scaled_are_refused() -> None:
    profile = find_profile("h100-8b")
    odd = msgspec.structs.replace(profile, page_size=48)
    with pytest.raises(BadLoad, match="48 tokens do not divide 512"):
        trace_load(str(MOONCAKE), Cut(), Rules(), odd)
    with pytest.raises(BadLoad, match="scaled"):
        trace_load(str(MOONCAKE), Cut(tokens=0.5), Rules(), profile)


def test_shared_blocks_are_hits_and_nothing_else_is() -> None:
    """By hand: pages of 16, blocks of 512 tokens, the last known token always computed."""
    prompts = [
        (1100, (0, 1, 2)),  # nothing there yet
        (1200, (0, 1, 9)),  # two blocks
        (1100, (0, 1, 2)),  # all 68 full pages: 1088
        (1024, (0, 1)),  # 1024 - 1 known before the last: 63 pages
        (1024, (1, 0)),  # other blocks first
        (300, ()),  # of which nothing is known
    ]
    arrivals = [Arrival(100.0 * i, n, 20, blocks) for i, (n, blocks) in enumerate(prompts)]
    profile = make_profile(pages=1000, page_size=16, max_step_tokens=2048)
    run = run_checked(Load("load", list(map(Demand, arrivals))), profile)
    hits = [record.receipt.cached_tokens for record in run.records if record.receipt]
    assert hits == [0, 1024, 1088, 1008, 0, 0]


def test_hits_of_the_mooncake_sample_are_those_counted_on_its_blocks() -> None:
    """One after the other in a pool that forgets nothing, the cache has just the longest
    prefix of blocks that some earlier prompt had."""
    trace = read_mooncake(MOONCAKE)
    spaced = [Demand(Arrival(1e5 * i, *_sizes(a), a.blocks)) for i, a in enumerate(trace)]
    profile = make_profile(pages=60_000, page_size=16, max_step_tokens=10**6)
    run = simulate(Load("load", spaced), profile, FCFS)
    seen: set[tuple[int, ...]] = set()
    for record, arrival in zip(run.records, trace, strict=True):
        blocks = max(
            n for n in range(len(arrival.blocks) + 1) if arrival.blocks[:n] in seen | {()}
        )
        assert record.receipt is not None
        assert record.receipt.cached_tokens == 512 * blocks
        seen |= {arrival.blocks[:n] for n in range(1, arrival.prompt_tokens // 512 + 1)}
    assert sum(r.receipt.cached_tokens for r in run.records if r.receipt) > 0


def _sizes(arrival: Arrival) -> tuple[int, int]:
    return arrival.prompt_tokens, min(arrival.output_tokens, 3)


def test_a_victim_finds_its_own_pages_again_and_nobody_else_does() -> None:
    mine, other = (BlockKeys(id, 40, (), 16).first(4, []) for id in (1, 2))
    assert mine == BlockKeys(1, 40, (), 16).first(4, [])
    assert not {key.digest for key in mine} & {key.digest for key in other}
    shared, also = (BlockKeys(id, 40, (5,), 16).first(4, []) for id in (1, 2))
    assert shared[:2] == also[:2]
    assert not {key.digest for key in shared[2:]} & {key.digest for key in also[2:]}


def test_a_workload_is_drawn_and_spread_by_its_seed() -> None:
    profile = make_profile()
    repeat = Repeat(requests=50, rate_per_s=2.0)
    loads = [workload_load("mixed", repeat, Rules(seed=seed), profile) for seed in (1, 1, 2)]
    assert loads[0].demands == loads[1].demands != loads[2].demands
    assert loads[0].clients is None and len(loads[0].demands) == 50
    assert workload_load("mixed", Repeat(), Rules(), profile).clients == 4


@given(st.integers(0, 5))
def test_a_rule_that_is_added_leaves_the_others_as_they_were(seed: int) -> None:
    arrivals = [Arrival(float(i), 8, 8) for i in range(200)]
    priorities = [(0, 0.2), (8, 0.8)]
    alone = dressed(arrivals, Rules(priorities, seed=seed)).demands
    tenants = [("flood", 0.9), ("light", 0.1)]
    both = dressed(arrivals, Rules(priorities, tenants, 2.0, seed)).demands
    assert [d.priority for d in alone] == [d.priority for d in both]
    assert 20 <= sum(d.priority == 0 for d in alone) <= 60
    assert 5 <= sum(d.tenant == "light" for d in both) <= 40
    assert {d.deadline_s for d in both} == {2.0 * COSTS.alone_s(8, 8)}
    half = dressed(arrivals, Rules(priorities, tenants, 2.0, seed, timed_share=0.5)).demands
    assert [(d.priority, d.tenant) for d in half] == [(d.priority, d.tenant) for d in both]


def test_deadlines_and_paces_go_to_the_same_share_of_requests() -> None:
    arrivals = [Arrival(float(i), 8, 8) for i in range(200)]
    rules = Rules(slack=2.0, first_token_slack=3.0, pace=5.0, timed_share=0.3, seed=1)
    found = {
        (d.deadline_s, d.first_token_deadline_s, d.tokens_per_second)
        for d in dressed(arrivals, rules).demands
    }
    wishes = (2.0 * COSTS.alone_s(8, 8), 3.0 * COSTS.alone_s(8, 1), 5.0)
    assert found == {(None, None, None), wishes}
    timed = [d.deadline_s is not None for d in dressed(arrivals, rules).demands]
    assert 40 <= sum(timed) <= 80


@pytest.mark.parametrize("text", ["a", "a:", ":", "a:-1", "a:x", "a:0.5,,b:0.5", "a:0"])
def test_shares_that_are_none_are_named(text: str) -> None:
    with pytest.raises(ValueError, match="VALUE:SHARE"):
        parse_shares(text)
