"""The load generator, its figures and its comparison."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

import grpc
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from bench import load
from bench.client import closed_loop, open_loop
from bench.contest import Contender, measure
from bench.peers.transformers_static import batches
from bench.plots import plot_comparison, plot_recording
from bench.recording import Recording, Sample, read, save
from bench.report import latency_table, report
from bench.samples import Answer, percentile, summarise
from bench.scrape import ScrapeError, read_sample, watched
from bench.standings import comparison, medians
from bench.trace import SAMPLE, Arrival, Scale, poisson, read_trace, trace_jobs
from bench.workload import NAMES, Job, load_workload, running_at_most
from protos.walkway.v1 import inference_pb2 as pb
from protos.walkway.v1 import inference_pb2_grpc as pb_grpc
from service.messages import StepStats
from service.metrics import Metrics

PNG = b"\x89PNG\r\n\x1a\n"
FLOATS = st.floats(-1e6, 1e6)
JOBS = [Job((1, 2, 3), tokens) for tokens in (4, 1, 6, 2, 3)]


class CountingServicer(pb_grpc.InferenceServiceServicer):
    """Streams `max_tokens` tokens two at a time; refuses prompts that start with 0."""

    def __init__(self, gap_s: float = 0.0) -> None:
        self._gap_s = gap_s
        self.open = 0
        self.most_open = 0

    async def GenerateStream(  # noqa: N802
        self, request: pb.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateStreamResponse]:
        if request.token_ids.ids[0] == 0:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        left = request.stopping.max_tokens
        while left:
            await asyncio.sleep(self._gap_s)
            count = min(2, left)
            left -= count
            yield pb.GenerateStreamResponse(text="x" * count, token_ids=[7] * count)
        self.open -= 1
        yield pb.GenerateStreamResponse(summary=pb.Summary())


@asynccontextmanager
async def served(servicer: CountingServicer) -> AsyncIterator[str]:
    server = grpc.aio.server()
    pb_grpc.add_InferenceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def answer(*arrivals: tuple[float, int], due_s: float = 0.0, status: str = "OK") -> Answer:
    ended_s = arrivals[-1][0] if arrivals else due_s
    return Answer(due_s, due_s, ended_s, 3, arrivals, status)


def recorded() -> Recording:
    return Recording(
        load="mixed, 2 clients",
        service="toy",
        answers=[answer((0.5, 1), (0.7, 2)), answer((1.0, 1), (1.5, 1), due_s=0.25)],
        samples=[
            Sample(0.0, 0, 0, 0, 0),
            Sample(0.5, 2, 1, 64, 48),
            Sample(1.0, 1, 0, 32, 32),
        ],
    )


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


@given(st.lists(FLOATS, min_size=1), st.floats(0, 100))
def test_a_percentile_lies_within_the_sample(values: list[float], percent: float) -> None:
    assert min(values) <= percentile(values, percent) <= max(values)


@given(st.lists(FLOATS, min_size=1), st.floats(0, 100), st.floats(0, 100))
def test_a_higher_percent_is_no_lower_percentile(
    values: list[float], one: float, other: float
) -> None:
    low, high = sorted((one, other))
    slack = 1e-9 * max(map(abs, values))
    assert percentile(values, low) <= percentile(values, high) + slack


def test_a_percentile_between_two_ranks_is_interpolated() -> None:
    assert percentile([4.0, 1.0, 2.0, 3.0], 50) == 2.5
    assert percentile([0.0, 10.0], 95) == pytest.approx(9.5)


def test_an_empty_sample_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_time_to_first_token_counts_from_when_the_request_was_due() -> None:
    late = Answer(due_s=1.0, sent_s=3.0, ended_s=5.0, prompt_tokens=1, arrivals=((4.0, 1),))
    assert late.ttft_s == 3.0


def test_time_per_output_token_leaves_out_what_the_first_message_brought() -> None:
    assert answer((1.0, 3), (2.0, 1), (3.0, 3)).tpot_s == 0.5
    assert answer((1.0, 3)).tpot_s is None


def test_a_summary_counts_refusals_and_keeps_them_out_of_the_latencies() -> None:
    found = summarise([answer((1.0, 2), (2.0, 2)), answer((1.9, 1), status="UNAVAILABLE")])
    assert found.statuses == {"OK": 1, "UNAVAILABLE": 1}
    assert found.failed == 1
    assert found.output_tokens_per_s == 2.5
    assert found.ttft_s is not None
    assert found.ttft_s.p99 == 1.0
    assert found.total_s is not None
    assert found.total_s.p95 == 2.0


def test_a_run_without_answers_has_no_latencies() -> None:
    found = summarise([answer(status="UNAVAILABLE")])
    assert found.ttft_s is found.tpot_s is found.gap_s is found.total_s is None
    assert found.output_tokens_per_s == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_has_prompts_and_lengths(name: str) -> None:
    jobs = load_workload(name)
    assert all(job.prompt and job.max_tokens for job in jobs)
    assert running_at_most(name) == (1 if name == "single" else 32)


def test_the_workloads_are_those_that_the_published_figures_belong_to() -> None:
    mixed, fixed = load_workload("mixed"), load_workload("fixed")
    assert len(mixed) == 96
    assert sum(len(job.prompt) for job in mixed) == 12_213
    assert sum(job.max_tokens for job in mixed) == 6_682
    assert {(len(job.prompt), job.max_tokens) for job in fixed} == {(128, 128)}


def test_an_unknown_workload_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no workload named tiny"):
        load_workload("tiny")


def test_a_trace_starts_at_zero_and_keeps_its_times() -> None:
    trace = read_trace(SAMPLE)
    assert len(trace) == 60
    assert trace[0] == Arrival(0.0, 374, 44)
    assert trace[1].at_s == pytest.approx(4.314579, abs=1e-6)


def test_a_file_that_is_no_trace_is_refused_with_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="TIMESTAMP, ContextTokens"):
        read_trace(path)


def test_a_broken_line_of_a_trace_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,x,4\n")
    with pytest.raises(ValueError, match=r"broken\.csv:2"):
        read_trace(path)


@pytest.mark.parametrize(
    "content",
    [
        b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,\xff\n",
        b"TIMESTAMP,ContextTokens,GeneratedTokens\n" + b"1" * 200_000,
        b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
        b"2023-11-16 18:15:46,3,4\n2023-11-16 18:15:46+00:00,3,4\n",
    ],
    ids=["no text", "a long field", "with and without a time zone"],
)
def test_a_trace_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"broken\.csv"):
        read_trace(path)


def test_requests_of_a_trace_come_in_order_however_they_were_recorded(tmp_path: Path) -> None:
    path = tmp_path / "unsorted.csv"
    lines = [f"2023-11-16 18:15:{second},{second},1\n" for second in (46, 44, 59)]
    path.write_text("".join(["TIMESTAMP,ContextTokens,GeneratedTokens\n", *lines]))
    assert [(a.at_s, a.prompt_tokens) for a in read_trace(path)] == [(0, 44), (2, 46), (15, 59)]


def test_a_trace_is_scaled_in_time_and_tokens() -> None:
    trace = [Arrival(0.0, 100, 10), Arrival(8.0, 400, 30), Arrival(9.0, 1, 1)]
    jobs = trace_jobs(trace, Scale(time=0.5, tokens=0.1, seconds=9), vocab_size=50)
    assert [(job.at_s, len(job.prompt), job.max_tokens) for job in jobs] == [
        (0.0, 10, 1),
        (4.0, 40, 3),
    ]
    assert all(0 <= id < 50 for job in jobs for id in job.prompt)


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.floats(0.01, 10))
def test_a_scaled_request_fits_the_context_and_is_never_empty(
    prompt: int, output: int, tokens: float
) -> None:
    scale = Scale(tokens=tokens, context_tokens=64)
    (job,) = trace_jobs([Arrival(0.0, prompt, output)], scale, vocab_size=9)
    assert len(job.prompt) >= 1
    assert job.max_tokens >= 1
    assert len(job.prompt) + job.max_tokens <= 64


def test_the_same_seed_gives_the_same_prompts_and_arrivals() -> None:
    trace = read_trace(SAMPLE)[:5]
    once, again, other = (trace_jobs(trace, Scale(tokens=0.1), 999, seed) for seed in (1, 1, 2))
    assert once == again != other
    assert poisson(once, 2.0, seed=3) == poisson(again, 2.0, seed=3)


def test_poisson_arrivals_have_the_rate_asked_for() -> None:
    jobs = poisson([Job((1,), 1)] * 4000, rate_per_s=20.0)
    assert 4000 / jobs[-1].at_s == pytest.approx(20.0, rel=0.05)


async def test_a_closed_loop_has_exactly_so_many_calls_open() -> None:
    servicer = CountingServicer(gap_s=0.005)
    async with served(servicer) as target:
        answers = await closed_loop(target, JOBS, clients=2)
    assert servicer.most_open == 2
    assert sorted(a.output_tokens for a in answers) == [1, 2, 3, 4, 6]
    assert {a.status for a in answers} == {"OK"}


async def test_every_message_with_tokens_is_an_arrival() -> None:
    async with served(CountingServicer()) as target:
        (one,) = await closed_loop(target, [Job((1,), 5)], clients=1)
    assert [tokens for _, tokens in one.arrivals] == [2, 2, 1]
    assert one.sent_s <= one.arrivals[0][0] <= one.ended_s


async def test_an_open_loop_sends_on_time_however_slow_the_service_is() -> None:
    jobs = [Job((1,), 4, at_s=0.02 * number) for number in range(4)]
    servicer = CountingServicer(gap_s=0.15)
    async with served(servicer) as target:
        answers = await open_loop(target, jobs)
    assert servicer.most_open == 4
    assert [a.due_s for a in answers] == pytest.approx([0.0, 0.02, 0.04, 0.06])


async def test_a_refused_call_is_counted_and_the_client_goes_on() -> None:
    async with served(CountingServicer()) as target:
        answers = await closed_loop(target, [Job((0,), 4), Job((1,), 4)], clients=1)
    assert [a.status for a in answers] == ["RESOURCE_EXHAUSTED", "OK"]


def test_the_gauges_are_read_as_the_service_writes_them() -> None:
    metrics = Metrics("toy")
    metrics.engine.step(StepStats(running=3, waiting=2, held_pages=5, used_slots=70))
    text = generate_latest(metrics.exposed()).decode()
    assert read_sample(text, 1.5, page_size=16) == Sample(1.5, 3, 2, 80, 70)


def test_a_service_that_never_stepped_holds_nothing() -> None:
    text = generate_latest(Metrics("toy").exposed()).decode()
    assert read_sample(text, 0.0, page_size=16) == Sample(0.0, 0, 0, 0, 0)


async def test_a_run_ends_when_its_metrics_cannot_be_read() -> None:
    endless = open_loop("127.0.0.1:1", [])
    with pytest.raises(ScrapeError, match=r"127\.0\.0\.1:1/metrics"):
        await watched(endless, "http://127.0.0.1:1/metrics", page_size=16)


def test_a_recording_comes_back_from_disk_as_it_was(tmp_path: Path) -> None:
    save(recorded(), tmp_path / "out" / "run.json")
    assert read(tmp_path / "out" / "run.json") == recorded()


def test_waste_and_batch_size_are_means_over_scrapes_with_work() -> None:
    found = report(recorded())
    assert found.waste == pytest.approx((16 / 64 + 0) / 2)
    assert found.batch == 1.5


def test_a_report_has_every_figure_in_its_line() -> None:
    line = latency_table([report(recorded())]).splitlines()[2]
    assert cells(line) == [
        "mixed, 2 clients",
        "toy",
        "3.3",
        "625.0 / 737.5 / 747.5",
        "300.0 / 480.0 / 496.0",
        "350.0 / 485.0 / 497.0",
        "1.5",
        "12.5%",
        "0/2",
    ]


def test_pictures_are_png_files(tmp_path: Path) -> None:
    plot_recording(recorded(), tmp_path / "run.png")
    plot_comparison({"mixed": {"ours": 2.0, "theirs": 1.0}}, tmp_path / "compare.png")
    for name in ("run.png", "compare.png"):
        assert (tmp_path / name).read_bytes().startswith(PNG)


def test_without_the_extra_a_command_says_so_and_exits_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "bench.plots")
    assert load.main([]) == 2
    assert "matplotlib is not installed: pip install matplotlib" in capsys.readouterr().err


ENGINE = """
import os, sys, time
from bench.samples import Answer
from bench.turns import named, own_stdout, take_turns
say = own_stdout()
time.sleep(0.3 if sys.argv[1] == "fast" else 0)
ready_s = time.monotonic()
print("noise on standard output")
os.write(1, b"noise of a C library\\n")
def run(jobs, at_once):
    tokens = 2 if sys.argv[1] == "fast" else 1
    return [Answer(0.0, 0.0, 4.0, 1, ((2.0, tokens), (4.0, tokens)))]
def notes():
    return {"batch": 1.0, "ready_s": ready_s, "at_s": time.monotonic()}
take_turns(sys.argv[1], run, named(sys.argv[2:]), say, notes)
"""


def test_engines_take_turns_in_every_round() -> None:
    engines = [Contender((sys.executable, "-c", ENGINE, name)) for name in ("slow", "fast")]
    turns = measure(engines, ["fixed", "single"], rounds=2)
    assert [(turn["workload"], turn["engine"]) for turn in turns] == [
        ("fixed", "slow"),
        ("fixed", "fast"),
        ("single", "slow"),
        ("single", "fast"),
    ] * 2
    assert medians(turns) == {
        "fixed": {"slow": 0.5, "fast": 1.0},
        "single": {"slow": 0.5, "fast": 1.0},
    }
    speeds, latencies = comparison(turns).split("\n\n")
    assert "2.00" in speeds.splitlines()[3]
    assert cells(latencies.splitlines()[3]) == [
        "fixed",
        "fast",
        "2000 / 2000 / 2000",
        "1000 / 1000 / 1000",
        "2000 / 2000 / 2000",
        "4000 / 4000 / 4000",
    ]
    assert max(turn["ready_s"] for turn in turns) < turns[0]["at_s"]


class Generating:
    """In place of a model of transformers: keeps how large each batch was."""

    def __init__(self) -> None:
        self.batches: list[tuple[list[int], int]] = []

    def generate(self, attention_mask: torch.Tensor, max_new_tokens: int, **_: object) -> None:
        self.batches.append((attention_mask.sum(1).tolist(), max_new_tokens))


def test_static_batches_take_a_mixed_workload_in_order_and_end_together() -> None:
    jobs, model = load_workload("mixed"), Generating()
    answers = batches(model, jobs, running_at_most("mixed"))
    parts = [jobs[first : first + 32] for first in range(0, len(jobs), 32)]
    assert model.batches == [
        ([len(job.prompt) for job in part], max(job.max_tokens for job in part))
        for part in parts
    ]
    assert [one.output_tokens for one in answers] == [job.max_tokens for job in jobs]
    ends = [one.ended_s for one in answers]
    assert len(set(ends)) == len(parts) and ends == sorted(ends)
    found = summarise(answers)
    assert found.failed == 0 and found.tpot_s is None
    turn = {"engine": "static", "workload": "mixed", **asdict(found)}
    assert cells(comparison([turn]).splitlines()[-1])[3:5] == ["-", "-"]


def test_an_engine_that_dies_ends_the_comparison_with_its_command() -> None:
    dead = Contender((sys.executable, "-c", "raise SystemExit(3)"))
    with pytest.raises(RuntimeError, match="ended without an answer"):
        measure([dead], ["fixed"], rounds=1)
