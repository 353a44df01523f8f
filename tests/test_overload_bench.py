"""The overload bench and the measurement of planning costs."""

import itertools
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from bench.overload import __main__ as overload
from bench.overload import rounds
from bench.overload.asks import Ask, Mix, by_time, pages_of
from bench.overload.capacity import Capacity, capacity
from bench.overload.client import LEFT, Reply, at_most, when_due
from bench.overload.counters import counted, counters
from bench.overload.deadlines import Deadlines
from bench.overload.figures import share, speed, ttft_s
from bench.overload.lasting import Length, length_of
from bench.overload.memory import TIMES, Memory
from bench.overload.priority import Priority
from bench.overload.rounds import Course, Effort, Turn, sized
from bench.overload.scenario import AT_ONCE, Scenario, Stand, Variant
from bench.overload.table import heading, label, shown, table
from bench.planning import Crowd, cost_of, measure
from bench.samples import Answer
from bench.scrape import ScrapeError
from bench.service_process import Running
from bench.simulation.catalogue import find_profile
from bench.simulation.choice import Choice
from bench.simulation.demand import Demand, Load
from bench.simulation.engine import simulate
from bench.simulation.profile import Profile
from bench.simulation.run import Run
from bench.trace import Arrival
from bench.workload import Job
from protos.walkway.v1 import inference_pb2 as pb
from protos.walkway.v1 import inference_pb2_grpc as pb_grpc
from schedulers.fcfs import FCFS, FCFSOptions
from schedulers.interface import Plan, Snapshot
from service.config import load_settings
from service.messages import StepStats
from service.metrics import Metrics
from service.metrics.endpoint import MetricsServer
from service.planner import BrokenScheduler
from service.step_sizes import step_sizes
from service.strategy import make_scheduler

PNG = b"\x89PNG\r\n\x1a\n"
REFUSE, HANG = 1, 2  # first prompt tokens that the servicer below takes as an order


class Servicer(pb_grpc.InferenceServiceServicer):
    """Says `max_tokens` tokens in two messages and a summary; refuses or hangs on order."""

    def __init__(self, metrics: Metrics) -> None:
        self.seen: list[pb.GenerateRequest] = []
        self.remaining_s: list[float | None] = []
        self.open = self.most_open = 0
        self._metrics = metrics

    def GenerateStream(  # noqa: N802
        self, request: pb.GenerateRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.GenerateStreamResponse]:
        self.seen.append(request)
        self.remaining_s.append(context.time_remaining())
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            yield from self._answer(request, context)
        finally:
            self.open -= 1

    def GetModelInfo(  # noqa: N802
        self, request: pb.GetModelInfoRequest, context: grpc.ServicerContext
    ) -> pb.GetModelInfoResponse:
        return pb.GetModelInfoResponse(model="toy", dtype="int64", kv_pages=9, page_size=16)

    def _answer(
        self, request: pb.GenerateRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.GenerateStreamResponse]:
        first = request.token_ids.ids[0] if len(request.token_ids.ids) == 1 else None
        if first == REFUSE:
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "refused: 9.000 s at least")
        if first == HANG:
            time.sleep(0.3)
        half = request.stopping.max_tokens // 2
        for count in (half, request.stopping.max_tokens - half):
            time.sleep(0.001)
            yield pb.GenerateStreamResponse(token_ids=[7] * count)
        self._metrics.engine.step(StepStats(steps=1, rows=2, evictions={"swap pages": 1}))
        receipt = pb.SchedulingReceipt(
            queue=Duration(nanos=500_000), preemptions=2, recomputed_tokens=5
        )
        yield pb.GenerateStreamResponse(summary=pb.Summary(scheduling=receipt))


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Servicer, Running]]:
    metrics = Metrics("toy")
    servicer = Servicer(metrics)
    endpoint = MetricsServer(metrics, "127.0.0.1", 0)
    with ThreadPoolExecutor(max_workers=64) as pool:
        server = grpc.server(pool)
        pb_grpc.add_InferenceServiceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield (
            servicer,
            Running(f"127.0.0.1:{port}", f"http://127.0.0.1:{endpoint.port}/metrics"),
        )
        server.stop(0).wait()
    endpoint.stop()


def reply(
    *arrivals: tuple[float, int],
    kind: str = "any",
    due_s: float = 0.0,
    sent_s: float = 0.0,
    status: str = "OK",
    queue_s: float | None = 0.0,
) -> Reply:
    ended_s = arrivals[-1][0] if arrivals else due_s
    return Reply(kind, Answer(due_s, sent_s, ended_s, 3, arrivals, status), queue_s=queue_s)


def course(turns: Sequence[Turn]) -> Course:
    return Course(
        "memory",
        "swapping",
        "toy",
        ("a.b=c",),
        Capacity(2.0, 0.5),
        Length(180.0, "3 times 60 s, by patient_share of deadline"),
        Effort(),
        list(turns),
    )


def turn(variant: str = "fcfs", part: str = "", number: int = 0, **figures: float) -> Turn:
    replies = [reply((0.5, 1), (0.75, 2)), reply(status="UNAVAILABLE")]
    return Turn(variant, part, number, 0.1, figures, replies)


MIXES = st.builds(
    Mix,
    st.tuples(st.integers(1, 9), st.integers(9, 40)),
    st.tuples(st.integers(1, 9), st.integers(9, 40)),
)


@given(MIXES, st.integers(1, 8), st.integers(0, 8), st.integers(0, 5))
def test_more_requests_of_a_seed_begin_with_the_fewer(
    mix: Mix, few: int, more: int, seed: int
) -> None:
    jobs = mix.jobs(few + more, seed)
    assert jobs[:few] == mix.jobs(few, seed)
    for job in jobs:
        assert mix.prompt[0] <= len(job.prompt) <= mix.prompt[1]
        assert mix.output[0] <= job.max_tokens <= mix.output[1]


def test_arrivals_have_the_rate_that_was_asked_for() -> None:
    mix = Mix((1, 1), (1, 1))
    jobs = mix.arriving(2000, rate_per_s=4.0, seed=3, from_s=10.0)
    times = [job.at_s for job in jobs]
    assert times == sorted(times) and times[0] >= 10.0
    assert (times[-1] - 10.0) / 2000 == pytest.approx(0.25, rel=0.1)
    assert jobs == mix.arriving(2000, rate_per_s=4.0, seed=3, from_s=10.0)


def test_arrivals_come_in_bursts_and_rise_and_fall() -> None:
    jobs = Mix((1, 1), (1, 1)).arriving(9000, rate_per_s=10.0, seed=1)
    times = [job.at_s for job in jobs]
    thirds = [sum(n * 300 <= at_s < (n + 1) * 300 for at_s in times) for n in range(3)]
    assert thirds[1] > 1.4 * max(thirds[0], thirds[2])
    middle = [after - before for before, after in itertools.pairwise(times[3000:6000])]
    assert statistics.pstdev(middle) > 1.1 * statistics.mean(middle)  # at random: 1.0 times


def test_a_load_lasts_three_times_as_long_as_the_longest_option_of_its_strategies() -> None:
    slow, fast = Capacity(1.0, 20.0), Capacity(1.0, 0.5)
    plain = Variant("fcfs", ("scheduler.name=fcfs",))
    assert length_of([plain], (), slow).seconds == 40
    patient = Variant(
        "deadline", ("scheduler.name=deadline", "scheduler.options.patient_share=0.25")
    )
    found = length_of([plain, patient], (), slow)
    assert found == Length(240.0, "3 times 80 s, by patient_share of deadline")
    shared = Variant(
        "shortest", ("scheduler.name=shortest", "scheduler.options.aged_share=0.2")
    )
    assert length_of([shared], (), slow).seconds == pytest.approx(300)
    assert length_of([shared], (), fast).seconds == 40


def test_the_last_token_of_a_request_needs_no_slot() -> None:
    assert pages_of(Job((1,) * 16, 1), 16) == 1
    assert pages_of(Job((1,) * 16, 2), 16) == 2


def test_the_pool_holds_a_quarter_of_what_is_asked_for_at_once() -> None:
    mix = Mix((32, 32), (17, 17))  # three pages each
    scratch = 1
    settings = load_settings(None, sized(mix, Effort()))
    assert settings.memory.num_pages == 64 * 3 // 4 + scratch
    chosen = load_settings(None, sized(mix, Effort(settings=("memory.page_size=48",))))
    assert chosen.memory.num_pages == 64 // 4 + scratch
    assert sized(mix, Effort(settings=("memory.num_pages=99",)))[-1] == "memory.num_pages=99"


@pytest.mark.parametrize("scenario", overload.SCENARIOS, ids=overload.NAMES)
def test_every_variant_names_a_strategy_that_can_be_made(scenario: Scenario) -> None:
    largest = Job((1,) * scenario.mix.prompt[1], scenario.mix.output[1])
    for variant in scenario.variants:
        settings = load_settings(None, (*sized(scenario.mix, Effort()), *variant.settings))
        make_scheduler(settings.scheduler.name, settings.scheduler.options)
        assert settings.memory.num_pages is not None
        assert settings.memory.num_pages > 4 * pages_of(largest, settings.memory.page_size)


@pytest.fixture(scope="module")
def under_pressure() -> dict[str, Run]:
    """The memory scenario, simulated: a run of each variant."""
    (pool,) = (one for one in sized(Memory.mix, Effort()) if "num_pages" in one)
    pages = int(pool.partition("=")[2]) - 1
    profile = msgspec.structs.replace(find_profile("cpu"), device_pages=pages)
    fcfs = Variant("fcfs", ("scheduler.name=fcfs",))
    busy = _simulated(Memory.mix.jobs(AT_ONCE, seed=0), fcfs, profile, clients=32)
    jobs = Memory.mix.arriving(AT_ONCE, TIMES * AT_ONCE / busy.ended_s, seed=1)
    return {one.title: _simulated(jobs, one, profile) for one in Memory.variants}


def _simulated(
    jobs: Sequence[Job], variant: Variant, profile: Profile, clients: int | None = None
) -> Run:
    settings = load_settings(None, variant.settings)
    chosen, rows = settings.scheduler, step_sizes(settings.engine, "cpu").max_rows
    arrivals = [Arrival(job.at_s, len(job.prompt), job.max_tokens) for job in jobs]
    load = Load("memory", [Demand(arrival) for arrival in arrivals], clients)
    profile = msgspec.structs.replace(profile, max_rows=rows)
    return simulate(load, profile, Choice(variant.title, chosen.name, chosen.options))


@pytest.mark.parametrize("variant", Memory.variants, ids=lambda variant: variant.title)
def test_memory_is_so_short_that_over_a_third_of_the_requests_give_way(
    variant: Variant, under_pressure: dict[str, Run]
) -> None:
    run = under_pressure[variant.title]
    preempted = [one for one in run.records if one.receipt and one.receipt.preemptions]
    assert len(preempted) > AT_ONCE / 3
    assert all(record.answered for record in run.records)


def test_what_gives_way_under_pressure_is_computed_or_copied_again(
    under_pressure: dict[str, Run],
) -> None:
    lost = {name: run.totals for name, run in under_pressure.items()}
    assert lost["fcfs, recompute"].recomputed_tokens > 1000
    assert lost["fcfs, recompute"].swapped_pages == 0
    assert lost["fcfs, swap"].swapped_pages > 100
    assert lost["fcfs, swap"].recomputed_tokens == 0


async def test_a_request_crosses_the_wire_with_its_class_and_its_patience(
    served: tuple[Servicer, Running],
) -> None:
    servicer, running = served
    asks = [Ask("light", Job((5, 6), 4), 15, 30.0, wants_all=True, salt="x")]
    (got,) = await when_due(running.target, asks)
    seen, remaining_s = servicer.seen[-1], servicer.remaining_s[-1]
    assert (seen.priority, seen.tenant, seen.cache_salt) == (15, "light", "x")
    assert list(seen.token_ids.ids) == [5, 6]
    assert seen.stopping.min_tokens == seen.stopping.max_tokens == 4
    assert remaining_s is not None and 25 < remaining_s < 31
    assert got.done and got.answer.output_tokens == 4
    assert (got.queue_s, got.preemptions, got.recomputed_tokens) == (0.0005, 2, 5)


async def test_refused_and_late_requests_are_told_apart(
    served: tuple[Servicer, Running],
) -> None:
    _, running = served
    jobs = [Job((REFUSE,), 4), Job((HANG,), 4)]
    asks = [Ask("any", job, timeout_s=0.1) for job in jobs]
    refused, late = await when_due(running.target, asks)
    assert (refused.answer.status, refused.refused) == ("DEADLINE_EXCEEDED", True)
    assert (late.answer.status, late.refused) == ("DEADLINE_EXCEEDED", False)
    assert refused.queue_s is None and not refused.done and not late.done


async def test_a_caller_leaves_when_its_patience_ends_and_the_service_is_not_told(
    served: tuple[Servicer, Running],
) -> None:
    servicer, running = served
    (left,) = await when_due(running.target, [Ask("any", Job((HANG,), 4), leaves_s=0.1)])
    assert (left.answer.status, left.refused, left.done) == (LEFT, False, False)
    assert 0.1 <= left.total_s < 0.25
    remaining_s = servicer.remaining_s[-1]
    assert remaining_s is None or remaining_s > 1e6


async def test_an_open_loop_asks_when_it_is_time_whatever_is_open(
    served: tuple[Servicer, Running],
) -> None:
    _, running = served
    hanging = Ask("a", Job((HANG,), 2))
    asks = by_time([Ask("b", Job((9, 9), 2, 0.1))], [hanging])
    first, second = await when_due(running.target, asks)
    assert (first.kind, second.kind) == ("a", "b")
    assert 0.1 <= second.answer.sent_s < 0.25 < first.answer.ended_s
    assert second.answer.ended_s < first.answer.ended_s


async def test_a_closed_loop_never_has_more_open_than_it_may(
    served: tuple[Servicer, Running],
) -> None:
    servicer, running = served
    servicer.most_open = 0
    replies = await at_most(running.target, [Ask("any", Job((9, 9), 2))] * 20, 3)
    assert len(replies) == 20 and all(one.done for one in replies)
    # A call ends at the client before its handler is left.
    assert 2 <= servicer.most_open <= 6


def test_capacity_counts_between_filling_up_and_running_out() -> None:
    # Two clients; from the first end (1 s) to the last sending (3 s) 8 tokens of 4 a request.
    replies = [
        reply((0.5, 2), (1.0, 2), sent_s=0.0, queue_s=0.25),
        reply((1.0, 2), (2.0, 2), sent_s=0.0, queue_s=0.25),
        reply((1.5, 2), (3.0, 2), sent_s=1.0, due_s=1.0, queue_s=0.25),
        reply((2.5, 2), (3.5, 2), sent_s=2.0, due_s=2.0, queue_s=0.25),
        reply((5.0, 4), sent_s=3.0, due_s=3.0, queue_s=0.25),
    ]
    found = capacity(replies)
    assert found.requests_per_s == pytest.approx(8 / 2 / 4)
    assert found.served_s == pytest.approx(1.75)


def test_no_capacity_is_made_of_failed_requests() -> None:
    with pytest.raises(ValueError, match="UNAVAILABLE"):
        capacity([reply((1.0, 1)), reply(status="UNAVAILABLE")])


def test_figures_are_of_those_answered() -> None:
    replies = [
        reply((1.0, 3), (2.0, 3)),
        reply((3.0, 1), due_s=1.0),
        reply((9.0, 5), status="DEADLINE_EXCEEDED"),
    ]
    assert ttft_s(replies, 50) == 1.5
    assert speed(replies) == 7 / 3
    assert share([1], [1, 2]) == 0.5
    assert speed([]) == share([], []) == 0


def test_counters_are_read_as_the_service_writes_them() -> None:
    metrics = Metrics("toy")
    before = counted(generate_latest(metrics.exposed()).decode())
    metrics.engine.step(StepStats(steps=2, rows=6, recomputed_tokens=5, swapped_pages=7))
    found = counted(generate_latest(metrics.exposed()).decode()) - before
    assert (found.steps, found.rows) == (2, 6)
    assert (found.recomputed_tokens, found.swapped_pages) == (5, 7)
    assert found.plan_faults == found.preemptions == 0


async def test_a_service_without_the_counters_is_no_service_of_ours() -> None:
    with pytest.raises(ScrapeError, match="preemptions"):
        counted("# TYPE up gauge\nup 1\n")
    with pytest.raises(ScrapeError, match="127"):
        await counters("http://127.0.0.1:1/metrics")


@pytest.mark.parametrize("scenario", overload.SCENARIOS, ids=overload.NAMES)
async def test_every_scenario_comes_to_the_figures_it_draws(
    scenario: Scenario, served: tuple[Servicer, Running]
) -> None:
    _, running = served
    stand = Stand(running, Capacity(40.0, 5.0), seconds=0.3, seed=1)
    outcomes = await scenario.run(stand)
    assert len({one.part for one in outcomes}) == len(outcomes)
    for one in outcomes:
        assert set(scenario.headlines) <= one.figures.keys()
        assert one.replies and all(r.done for r in one.replies)
        assert one.figures["plan_faults"] == 0
        assert one.figures["preemptions"] == len(one.replies)


async def test_memory_is_asked_for_as_much_as_its_pool_is_a_quarter_of(
    served: tuple[Servicer, Running],
) -> None:
    stand = Stand(served[1], Capacity(1000.0, 5.0), seconds=0.001, seed=1)
    (outcome,) = await Memory().run(stand)
    assert len(outcome.replies) == AT_ONCE
    assert outcome.figures["preempted_share"] == 1


async def test_the_urgent_come_alone_at_the_times_at_which_they_come_under_load(
    served: tuple[Servicer, Running],
) -> None:
    servicer, running = served
    servicer.seen.clear()
    stand = Stand(running, Capacity(40.0, 5.0), seconds=0.2, seed=1)
    (outcome,) = await Priority().run(stand)
    salts = [request.cache_salt for request in servicer.seen if request.tenant == "high"]
    assert salts == ["idle"] * 30 + ["unloaded"] * 30 + [""] * 30
    figures = outcome.figures
    ratio = figures["high_ttft_p95_s"] / figures["high_unloaded_ttft_p95_s"]
    assert figures["high_ttft_p95_over_unloaded"] == ratio


@pytest.mark.parametrize("told", [True, False])
async def test_lengths_are_told_where_a_variant_says_so(
    told: bool, served: tuple[Servicer, Running]
) -> None:
    servicer, running = served
    servicer.seen.clear()
    stand = Stand(running, Capacity(40.0, 5.0), 0.1, seed=1, tells_lengths=told)
    await Deadlines().run(stand)
    said = [(one.stopping.min_tokens, one.stopping.max_tokens) for one in servicer.seen]
    assert said and all(least == (most if told else 0) for least, most in said)


async def test_all_variants_of_a_scenario_get_the_same_requests(
    served: tuple[Servicer, Running],
) -> None:
    servicer, running = served
    stand = Stand(running, Capacity(40.0, 5.0), seconds=0.2, seed=1)

    async def asked() -> list[tuple[int, ...]]:
        servicer.seen.clear()
        await overload.SCENARIOS[0].run(stand)
        return sorted(tuple(one.token_ids.ids) for one in servicer.seen)

    assert await asked() == await asked()


def test_a_figure_shows_its_unit() -> None:
    assert (label("high_ttft_p95_s"), shown("high_ttft_p95_s", 0.25)) == (
        "high ttft p95, ms",
        "250",
    )
    assert (label("met_share"), shown("met_share", 0.5)) == ("met, %", "50.0")
    assert (label("output_tokens_per_s"), shown("output_tokens_per_s", 9.96)) == (
        "output tokens/s",
        "10.0",
    )
    assert shown("high_ttft_p95_ratio", 1.5) == "1.50"
    assert shown("high_ttft_p95_over_unloaded", 1.5) == "1.50"
    assert shown("preemptions", 3.0) == "3"
    assert shown("ttft_p95_s", float("nan")) == "-"


def test_a_table_has_medians_over_rounds_and_how_far_they_spread() -> None:
    turns = [turn("swap", "2x", n, total_p95_s=s) for n, s in enumerate((3.0, 1.0, 2.0))]
    found = table(course([*turns, turn("fcfs", total_p95_s=1.0)]))
    cells = [list(column.cells) for column in found.columns]
    assert [column.header for column in found.columns] == ["", "swap 2x", "fcfs"]
    assert cells == [["total p95, ms"], ["2000 (1000 - 3000)"], ["1000"]]
    assert "2.00 requests/s" in heading(course(turns))
    assert "load for 180 s (3 times 60 s, by patient_share of deadline)" in heading(
        course(turns)
    )


class _Services:
    """Stands in for starting services; keeps the settings they were to have."""

    def __init__(self, running: Running) -> None:
        self.settings: list[tuple[str, ...]] = []
        self._running = running

    @contextmanager
    def service(self, settings: Sequence[str]) -> Iterator[Running]:
        self.settings.append(tuple(settings))
        yield self._running


@pytest.fixture
def services(served: tuple[Servicer, Running], monkeypatch: pytest.MonkeyPatch) -> _Services:
    found = _Services(served[1])
    monkeypatch.setattr(rounds, "service", found.service)
    monkeypatch.setattr(overload, "leave_on_sigterm", lambda: None)
    return found


def test_a_variant_that_keeps_lengths_to_itself_is_run_so(
    services: _Services, served: tuple[Servicer, Running]
) -> None:
    servicer, _ = served
    least = []
    for variant in Deadlines.variants:
        course = Course("deadlines", "", "", (), Capacity(40.0, 5.0), Length(0.1, ""), Effort())
        servicer.seen.clear()
        rounds._turns(Deadlines(), variant, course, 0)
        asked = [one for one in servicer.seen if one.tenant != "warm-up"]
        least.append(all(one.stopping.min_tokens for one in asked))
    assert least == [True, False, True]


@pytest.mark.parametrize(("asked_s", "seconds"), [(None, 60.0), (7.0, 7.0)])
def test_a_scenario_lasts_as_its_strategies_ask_unless_told(
    services: _Services, asked_s: float | None, seconds: float
) -> None:
    @dataclass(frozen=True)
    class Patient(Deadlines):
        variants = (
            Variant(
                "deadline", ("scheduler.name=deadline", "scheduler.options.patient_share=0.025")
            ),
        )

    effort = Effort(seconds=asked_s, capacity=Capacity(40.0, 0.5))
    assert rounds._begin(Patient(), (), effort).length.seconds == seconds


def test_variants_take_turns_in_every_round_each_on_a_service_of_its_own(
    services: _Services, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tenants", "--rounds", "2", "--seconds", "0.02", "--model", "toy"]
    arguments += ["--capacity", "50", "0.5"]
    arguments += ["--set", "engine.max_rows=8", "--out", str(tmp_path)]
    assert overload.main(arguments) == 0
    names = [settings[-1].partition("=")[2] for settings in services.settings]
    assert names == ["fcfs", *(["fair", "fcfs"] * 2)]
    for settings in services.settings:
        assert {"model.source=toy", "engine.max_rows=8"} <= set(settings)
    written = json.loads((tmp_path / "overload-tenants.json").read_text())
    assert [one["round"] for one in written["turns"]] == [0, 0, 1, 1]
    assert (tmp_path / "overload-tenants.png").read_bytes().startswith(PNG)
    assert "| light ttft p95, ms" in capsys.readouterr().out


def test_a_variant_that_does_not_come_up_leaves_what_was_measured_before(
    services: _Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def failing(settings: Sequence[str]) -> Iterator[Running]:
        if len(services.settings) == 2:
            raise RuntimeError("the service ended with code 2")
        with services.service(settings) as running:
            yield running

    monkeypatch.setattr(rounds, "service", failing)
    arguments = ["tenants", "--seconds", "0.02", "--capacity", "50", "0.5"]
    assert overload.main([*arguments, "--out", str(tmp_path)]) == 2
    written = json.loads((tmp_path / "overload-tenants.json").read_text())
    assert [one["variant"] for one in written["turns"]] == ["fair"]


def test_a_capacity_that_is_given_is_not_measured(
    services: _Services, served: tuple[Servicer, Running], tmp_path: Path
) -> None:
    served[0].seen.clear()
    arguments = ["tenants", "--seconds", "0.02", "--capacity", "50", "0.5"]
    assert overload.main([*arguments, "--out", str(tmp_path)]) == 0
    assert "capacity" not in {request.tenant for request in served[0].seen}
    written = json.loads((tmp_path / "overload-tenants.json").read_text())
    assert written["capacity"] == {"requests_per_s": 50.0, "served_s": 0.5}


def test_an_unknown_scenario_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        overload.main(["flood"])
    assert "no scenario flood" in capsys.readouterr().err


def test_an_unknown_setting_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overload, "leave_on_sigterm", lambda: None)
    assert overload.main(["tenants", "--set", "engine.rows=3"]) == 2
    assert "bench.overload: setting engine.rows: unknown" in capsys.readouterr().err


SMALL = Crowd(running=8, waiting=20, steps=30, warm_up_steps=10, exchanges=2)
TIGHT = Crowd(running=32, waiting=40, tight=True, steps=150, exchanges=1)


def ticking() -> Any:
    """A clock that goes on by one second whenever it is read."""
    return itertools.count().__next__


@pytest.mark.parametrize("name", ["fcfs", "static", "priority", "swap", "fair", "deadline"])
def test_planning_is_timed_apart_from_what_is_done_beside(name: str) -> None:
    cost = measure(name, None, SMALL, clock=ticking())
    assert cost.plan_median_s == cost.plan_p99_s == cost.first_plan_s == 1
    assert cost.beside_median_s == cost.beside_p99_s == 2
    assert cost.waiting == 20


def test_a_crowd_is_as_large_as_it_is_said_to_be() -> None:
    cost = measure("fcfs", None, SMALL)
    assert 7 < cost.running <= 8
    assert cost.evicted == 0
    assert 0 < cost.plan_median_s <= cost.plan_p99_s


def test_tight_pages_make_requests_give_way() -> None:
    assert measure("fcfs", None, TIGHT).evicted > 0


def test_options_reach_the_strategy_that_is_measured() -> None:
    with pytest.raises(ValueError, match="no option 'speed'"):
        measure("fcfs", {"speed": 1}, SMALL)


class Lazy(FCFS):
    """Computes nothing from its third plan on."""

    def __init__(self) -> None:
        super().__init__(FCFSOptions())
        self._plans = 0

    def plan(self, snap: Snapshot) -> Plan:
        self._plans += 1
        return super().plan(snap) if self._plans < 3 else Plan()


def test_no_cost_is_told_of_a_strategy_that_breaks_the_rules() -> None:
    with pytest.raises(BrokenScheduler, match="nothing is computed"):
        cost_of("lazy", Lazy, SMALL)


def test_the_first_plan_after_an_exchange_is_that_of_a_fresh_strategy() -> None:
    made: list[FCFS] = []

    def make() -> FCFS:
        made.append(FCFS(FCFSOptions()))
        return made[-1]

    cost_of("fcfs", make, SMALL)
    first, exchanges, last = 1, SMALL.exchanges, 1
    assert len(made) == first + exchanges + last
