"""Other engines' policies in the simulator: each does what it is known for."""

import pytest
from typer.testing import CliRunner

from bench.simulation.choice import Choice
from bench.simulation.demand import Demand, Load
from bench.simulation.engine import simulate
from bench.simulation.mooncake import BLOCK_TOKENS
from bench.simulation.peers import PEERS
from bench.simulation.peers.levels import RATIO
from bench.simulation.profile import Profile
from bench.simulation.record import Record
from bench.trace import Arrival
from cli.main import app
from schedulers.registry import UnknownScheduler, available
from tests.simulations import make_profile, run_checked

URGENT, USUAL = 12, 4


def demand(
    at_s: float,
    prompt: int,
    output: int,
    priority: int = USUAL,
    tenant: str = "",
    blocks: tuple[int, ...] = (),
) -> Demand:
    return Demand(Arrival(at_s, prompt, output, blocks), priority, tenant)


def records(name: str, profile: Profile, *demands: Demand, **options: float) -> list[Record]:
    """Of a run in which every plan is checked."""
    load = Load("load", demands)
    return run_checked(load, profile, Choice(name, name, dict(options))).records


def first_s(record: Record) -> float:
    assert record.first_s is not None
    return record.first_s


@pytest.mark.parametrize("host", [0, 100])
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_answers_everything_when_pages_and_rows_are_short(name: str, host: int) -> None:
    demands = [
        demand(0.7 * i, 2 + 5 * i % 11, 1 + 7 * i % 13, (USUAL, URGENT, 0)[i % 3], "ab"[i % 2])
        for i in range(24)
    ]
    found = run_checked(Load("load", demands), make_profile(20, host), Choice(name, name))
    assert all(record.answered for record in found.records)
    assert found.totals.preemptions and not found.faults


def test_the_service_does_not_offer_peers_and_the_simulator_names_them() -> None:
    assert not PEERS.keys() & available().keys()
    with pytest.raises(UnknownScheduler, match=r"fcfs.*for comparison: vllm-fcfs.*vtc"):
        Choice("no", "no").make()
    ran = CliRunner().invoke(app, ["advise", "--trace", "sample", "--scheduler", "vtc"])
    assert ran.exit_code == 2
    assert "another engine's" in ran.output


@pytest.mark.parametrize(("name", "preempted"), [("vllm-priority", 0), ("sglang-priority", 1)])
def test_with_every_row_taken_vllm_lets_an_urgent_request_wait_and_sglang_does_not(
    name: str, preempted: int
) -> None:
    low, other, before, urgent = records(
        name,
        make_profile(max_rows=2),
        demand(0, 2, 20),
        demand(0, 2, 30),
        demand(2, 2, 1),
        demand(3, 2, 1, URGENT),
    )
    assert first_s(urgent) < first_s(before)
    assert (first_s(urgent) < min(low.ended_s, other.ended_s)) == bool(preempted)
    assert [len(record.pauses) for record in (low, other)] == [0, preempted]


def test_vllm_admits_by_priority_and_preempts_the_least_urgent_when_pages_run_out() -> None:
    # Each grows to 12 tokens, six pages; ten pages are not enough for two.
    profile = make_profile(pages=10, max_rows=2)
    for name, preempted in (("vllm-fcfs", [0, 1, 0]), ("vllm-priority", [1, 0, 0])):
        found = records(
            name,
            profile,
            demand(0, 2, 10),
            demand(0, 2, 10, URGENT),
            demand(0.5, 2, 1, URGENT),
        )
        assert [len(record.pauses) for record in found] == preempted


@pytest.mark.parametrize(("threshold", "preempted"), [(7, 1), (8, 0)])
def test_sglang_preempts_above_the_threshold_only(threshold: int, preempted: int) -> None:
    low, urgent = records(
        "sglang-priority",
        make_profile(max_rows=1),
        demand(0, 2, 20),
        demand(3, 2, 1, URGENT),
        threshold=threshold,
    )
    assert len(low.pauses) == preempted
    assert (first_s(urgent) < low.ended_s) == bool(preempted)


@pytest.mark.parametrize(("waiting", "by_prefix"), [(128, True), (129, False)])
def test_lpm_takes_the_longest_prefix_first_with_up_to_128_waiting(
    waiting: int, by_prefix: bool
) -> None:
    """One leaves a prefix in the cache; of those that wait, the last shares it."""
    profile = make_profile(
        pages=400, page_size=64, max_rows=1, max_step_tokens=4 * BLOCK_TOKENS
    )
    first = demand(0, BLOCK_TOKENS + 1, 2, blocks=(1, 2))
    others = [demand(1, 2, 1, blocks=(10 + i,)) for i in range(waiting - 1)]
    sharer = demand(1, BLOCK_TOKENS + 1, 1, blocks=(1, 3))
    choice = Choice("lpm", "sglang-lpm")
    found = simulate(Load("load", [first, *others, sharer]), profile, choice).records
    assert (first_s(found[-1]) < first_s(found[1])) == by_prefix


def test_mlfq_demotes_a_long_answer_and_preempts_it_for_a_short_one() -> None:
    long, short = records(
        "mlfq", make_profile(host=100, max_rows=1), demand(0, 2, 40), demand(30, 2, 1)
    )
    assert [pause.mode for pause in long.pauses] == ["swap"]
    assert first_s(short) < long.ended_s


def test_mlfq_lets_a_long_prompt_skip_the_levels_that_its_prefill_would_use_up() -> None:
    """It finds one running that has used less than its own prefill takes."""
    running, late = records(
        "mlfq", make_profile(host=100, max_rows=1), demand(0, 2, 3), demand(2, 8 * RATIO**3, 1)
    )
    assert not running.pauses
    assert first_s(late) > running.ended_s


@pytest.mark.parametrize(("starve_s", "in_time"), [(10.0, True), (1e6, False)])
def test_mlfq_takes_one_that_starves_to_the_top(starve_s: float, in_time: bool) -> None:
    """Short ones come faster than they are answered; a long prompt is behind them all."""
    stream = [demand(1.2 * i, 2, 1) for i in range(60)]
    demands = [stream[0], demand(1, 40, 1), *stream[1:]]
    profile = make_profile(host=100, max_rows=1)
    long = records("mlfq", profile, *demands, starve_s=starve_s)[1]
    assert long.queue_s is not None
    assert (long.queue_s < 20) == in_time


def test_mlfq_lets_one_that_starves_preempt() -> None:
    """Its prefill would fill the quantum of a level that the running one is not yet below."""
    profile = make_profile(host=100, max_rows=1)
    waits_s = [
        records("mlfq", profile, demand(0, 2, 90), demand(2, 64, 1), starve_s=starve_s)[
            1
        ].queue_s
        for starve_s in (10.0, 1e6)
    ]
    assert waits_s[0] is not None and 10 <= waits_s[0] < 15
    assert waits_s[1] is not None and waits_s[1] > 50


@pytest.mark.parametrize(("prompt", "answer"), [(40, 1), (2, 20)])
def test_vtc_admits_the_tenant_with_the_least_counter(prompt: int, answer: int) -> None:
    """`a` has paid for a long prompt or answer, so both of `b` go before the next of `a`."""
    profile = make_profile(max_rows=1)
    demands = [demand(0, prompt, answer, tenant="a"), demand(0, 2, 1, tenant="a")]
    demands += [demand(0, 2, 1, tenant="b"), demand(0, 2, 1, tenant="b")]
    _, second, *others = records("vtc", profile, *demands)
    assert all(first_s(other) < first_s(second) for other in others)


def test_vtc_lifts_a_tenant_that_comes_back_to_the_least_counter() -> None:
    """`b` stayed away while `a` was served; it does not go before all of what `a` has left."""
    profile = make_profile(max_rows=1)
    stream = [demand(0, 4, 2, tenant="a") for _ in range(8)]
    late = [demand(12, 4, 2, tenant="b") for _ in range(3)]
    found = records("vtc", profile, *stream, *late)
    order = sorted(found, key=first_s)
    tenants = "".join(record.demand.tenant for record in order)
    assert "bab" in tenants and "bb" not in tenants
