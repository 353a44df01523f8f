"""What the service counts while real requests run, and what is there before any does."""

import asyncio
import http.client
import socket
import struct
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from functools import partial

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from protos.descriptors import descriptor_set
from protos.descriptors import methods as every_method
from protos.walkway.v1 import inference_pb2 as pb
from protos.walkway.v1.inference_pb2_grpc import InferenceServiceStub
from schedulers.interface import Cause, Mode
from service.build import TOY_SLOT_BYTES
from service.call import ENDINGS
from service.errors import CODES
from service.messages import Finish, RequestEvent, StepStats
from service.metrics import Metrics
from service.metrics.families import Families
from service.metrics.latency import InterTokenLatency
from service.metrics.page import every_metric
from service.metrics.process import LOOK_S
from service.outbox import merge_stats
from tests.wire import (
    PAGE_SIZE,
    Wire,
    ask,
    collect,
    first_message,
    serving,
    status_of,
    toy_build,
)

Sample = tuple[str, frozenset[tuple[str, str]]]
Page = dict[Sample, float]
STAY = {  # what no request moves
    "walkway_context_tokens": "of the model",
    "walkway_host_capacity_bytes": "of the host store",
    "walkway_host_capacity_pages": "of the host store",
    "walkway_kv_capacity_bytes": "of the pool",
    "walkway_kv_capacity_pages": "of the pool",
    "walkway_kv_page_tokens": "of the pool",
    "walkway_max_rows": "a limit",
    "walkway_max_step_tokens": "a limit",
    "walkway_queue_max_bytes": "a limit",
    "walkway_queue_max_requests": "a limit",
    "walkway_queue_max_tokens": "a limit",
    "walkway_engine_up": "an engine served all the time",
    "walkway_engine_restarts": "likewise",
    "walkway_build": "says what runs",
    "walkway_scheduler": "says what plans",
    "walkway_plan_faults": "the strategy made none",
    "walkway_short_rows": "the strategy made none",
    "walkway_overrun_tokens": "one step is in flight",
    "walkway_refused_swaps": "the strategy looks at the room there first",
    "process_start_time_seconds": "it does not start again",
    "process_max_fds": "a limit",
    "walkway_engine_process_start_time_seconds": "it does not start again",
    "walkway_engine_process_max_fds": "a limit",
}

MEMORY = {  # what the system may or may not give for a few requests
    f"{whose}_{what}_memory_bytes"
    for whose in ("process", "walkway_engine_process")
    for what in ("resident", "virtual")
}


def read(
    address: int, path: str = "/metrics", method: str = "GET"
) -> tuple[int, dict[str, str], str]:
    """Status, headers and body."""
    connection = http.client.HTTPConnection("127.0.0.1", address, timeout=5)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read().decode()
    finally:
        connection.close()


async def scraped(wire: Wire) -> Page:
    _, _, text = await asyncio.to_thread(read, wire.service.listeners.metrics_port)
    return samples(text)


def samples(text: str) -> Page:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def families(pages: Iterable[Sample]) -> set[str]:
    """Names of metrics, of whose samples these are."""
    suffixes = ("_total", "_info", "_bucket", "_sum", "_count")
    names = set()
    for name, _ in pages:
        found = next((end for end in suffixes if name.endswith(end)), "")
        names.add(name.removesuffix(found))
    return names


async def test_requests_move_every_metric_that_is_theirs() -> None:
    build = toy_build(pages=24, host=12, step_s=0.002)
    swapping = {"name": "fcfs", "options": {"eviction": "swap"}}
    exposed = {"enabled": True, "port": 0}
    rows = {"max_rows": 3}
    async with serving(build, scheduler=swapping, metrics=exposed, engine=rows) as wire:
        pages = [await scraped(wire)]
        stream = wire.stub.GenerateStream(ask(max_tokens=20))
        await first_message(stream)
        pages.append(await scraped(wire))
        await collect(stream)
        asked = [ask(f"prompt {n}", max_tokens=60) for n in range(4)]
        crowd = asyncio.gather(*map(wire.stub.Generate, asked))
        await wire.until(lambda: wire.gauge("queue_tokens") > 0)
        pages.append(await scraped(wire))
        await wire.until(lambda: wire.gauge("requests", state="swapped") > 0)
        pages.append(await scraped(wire))
        text = (await crowd)[0].text
        stopped = ask("prompt 0", 60, stopping=pb.Stopping(stop_strings=[text[3:5]]))
        while not wire.gauge("dropped_tokens_total"):
            await wire.stub.Generate(stopped)
        await status_of(wire.stub.Generate(ask(max_tokens=1 << 30)))
        await wire.settled()
        await asyncio.sleep(2 * LOOK_S)
        pages.append(await scraped(wire))
    before = pages.pop(0)
    moved = families(s for page in pages for s in page if page[s] != before.get(s))
    assert families(before) - moved - STAY.keys() - MEMORY == set(), "did not move"
    assert all(value > 0 for (name, _), value in before.items() if name in MEMORY)
    assert moved & STAY.keys() == set(), "moved"


async def test_the_histograms_of_tokens_say_what_the_answers_do() -> None:
    async with serving() as wire:
        requests = [ask("x" * n, max_tokens=7 * n) for n in (1, 5, 30)]
        streams = await asyncio.gather(
            *(collect(wire.stub.GenerateStream(r)) for r in requests)
        )
        usages = [messages[-1].summary.usage for messages in streams]
        await wire.settled()
        outputs = [usage.output_tokens for usage in usages]
        prompts = [usage.prompt_tokens for usage in usages]
        for name, found in {"prompt": prompts, "output": outputs}.items():
            assert wire.gauge(f"request_{name}_tokens_count") == 3
            assert wire.gauge(f"request_{name}_tokens_sum") == sum(found)
        gaps = sum(count - 1 for count in outputs)
        assert wire.gauge("inter_token_latency_seconds_count") == gaps
        gaps_s = wire.gauge("inter_token_latency_seconds_sum")
        assert 0 < gaps_s < wire.gauge("request_seconds_sum")
        assert wire.gauge("step_tokens_count") == wire.gauge("steps_total")
        tokens = sum(prompts) + sum(outputs) - 3  # a last token is never computed
        computed = tokens - wire.gauge("cached_tokens_total")
        assert wire.gauge("step_tokens_sum") == pytest.approx(computed)
        assert wire.gauge("prefill_seconds_count") == 3
        parts_s = sum(wire.gauge(f"{part}_seconds_sum") for part in ("queue", "prefill"))
        assert parts_s == pytest.approx(wire.gauge("time_to_first_token_seconds_sum"))


def test_steps_told_in_one_message_keep_their_tokens() -> None:
    metrics = Metrics("toy")
    told = (StepStats(steps=1, step_tokens=tokens) for tokens in (3, 5))
    metrics.engine.step(merge_stats(*told))
    found = metrics.registry.get_sample_value
    assert found("walkway_step_tokens_count") == 2
    assert found("walkway_step_tokens_sum") == 8


def news(id: int, tokens: int, finish: Finish | None = None) -> RequestEvent:
    return RequestEvent(id, tokens=[7] * tokens, finish=finish)


def test_a_gap_is_the_wait_for_a_token_and_those_that_came_with_it_had_none() -> None:
    registry, now_s = CollectorRegistry(), [0.0]
    latency = InterTokenLatency(Families(registry), lambda: now_s[0])

    def gaps() -> tuple[float, float, float]:
        """How many, together, and of no length."""
        name = "walkway_inter_token_latency_seconds"
        return (
            registry.get_sample_value(f"{name}_count"),
            registry.get_sample_value(f"{name}_sum"),
            registry.get_sample_value(f"{name}_bucket", {"le": "0.001"}),
        )

    latency.arrived([news(1, 1), news(2, 0)])
    assert gaps() == (0, 0, 0)
    now_s[0] = 3.0
    latency.arrived([news(1, 1), news(2, 2)])
    assert gaps() == (2, 3.0, 1)
    now_s[0] = 5.0
    latency.arrived([news(1, 3), news(2, 1, Finish.LENGTH)])
    assert gaps() == (6, 7.0, 3)
    now_s[0] = 9.0
    latency.arrived([news(2, 1)])  # another of that number: its first token
    latency.down()
    latency.arrived([news(1, 1)])
    assert gaps() == (6, 7.0, 3)


def test_every_value_of_every_label_is_there_before_anything_happens() -> None:
    page = samples(generate_latest(Metrics("toy").exposed()).decode())
    values: dict[tuple[str, str], set[str]] = {}
    for name, labels in page:
        for label, value in labels:
            values.setdefault((name, label), set()).add(value)
    finishes = {finish.value for finish in Finish} | {*ENDINGS.values()}
    codes = {code.name for code in grpc.StatusCode}
    methods = {*every_method(descriptor_set()), "unknown"}
    expected = {
        ("requests_finished_total", "finish"): finishes,
        ("requests_refused_total", "code"): {code.name for code in CODES.values()},
        ("preemptions_total", "mode"): {mode.value for mode in Mode},
        ("preemptions_total", "cause"): {cause.value for cause in Cause},
        ("requests", "state"): {"running", "waiting", "swapped"},
        ("kv_pages", "state"): {"free", "cached", "held"},
        ("host_pages", "state"): {"free", "held"},
        ("step_seconds_count", "part"): {"schedule", "model", "sample", "copy"},
        ("rpc_finished_total", "code"): codes,
        ("rpc_finished_total", "method"): methods,
        ("rpc_seconds_count", "method"): methods,
        ("rpc_started_total", "method"): methods,
        ("rpc_open", "method"): methods,
    }
    for (name, label), wanted in expected.items():
        assert values[f"walkway_{name}", label] == wanted
    assert len(methods) > 12
    zeros = [value for (name, _), value in page.items() if name.endswith(("_total", "_count"))]
    assert set(zeros) - {page["process_cpu_seconds_total", frozenset()]} == {0}


def test_what_is_ours_has_the_name_of_the_model() -> None:
    for metric in every_metric():
        for sample in metric.samples:
            ours = metric.name.startswith("walkway_")
            assert sample.labels.get("model_name") == ("model" if ours else None)


async def test_capacity_is_what_the_engine_was_given_and_stays_when_it_is_gone() -> None:
    build = toy_build(pages=100, host=7)
    limits = {"max_rows": 5, "max_step_tokens": 77}
    server = {"max_waiting_requests": 11, "max_waiting_tokens": 1234}
    async with serving(build, engine=limits, server=server) as wire:
        wire.service.on_down("asked to")
        page_bytes = PAGE_SIZE * TOY_SLOT_BYTES
        for name, value in {
            "max_rows": 5,
            "max_step_tokens": 77,
            "kv_capacity_pages": 100,
            "kv_capacity_bytes": 100 * page_bytes,
            "kv_page_tokens": PAGE_SIZE,
            "host_capacity_pages": 7,
            "host_capacity_bytes": 7 * page_bytes,
            "queue_max_requests": 11,
            "queue_max_tokens": 1234,
        }.items():
            assert wire.gauge(name) == value
        assert (
            wire.gauge("kv_pages", state="free") == wire.gauge("host_pages", state="free") == 0
        )


async def test_the_queue_is_shown_while_somebody_waits_in_it() -> None:
    one_row = toy_build(step_s=0.02)
    async with serving(one_row, engine={"max_rows": 1}) as wire:
        first = asyncio.ensure_future(wire.stub.Generate(ask(max_tokens=50)))
        await wire.until(lambda: wire.gauge("requests", state="running") == 1)
        second = asyncio.ensure_future(wire.stub.Generate(ask("waiting", max_tokens=1)))
        await wire.until(lambda: wire.gauge("queue_tokens") == len("waiting"))
        assert wire.gauge("queue_requests") == 1
        assert wire.gauge("queue_bytes") == len("waiting")
        await asyncio.gather(first, second)
        assert wire.gauge("queue_requests") == wire.gauge("queue_tokens") == 0
        assert wire.gauge("queue_bytes") == 0


async def test_a_held_up_event_loop_shows_for_how_long() -> None:
    async with serving() as wire:
        await wire.until(lambda: wire.gauge("event_loop_lag_seconds_count") > 0)
        before_s = wire.gauge("event_loop_lag_seconds_sum")
        time.sleep(LOOK_S + 0.5)  # noqa: ASYNC251
        await wire.until(lambda: wire.gauge("event_loop_lag_seconds_sum") > before_s + 0.4)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0"])
async def test_connections_are_counted_by_listener(host: str) -> None:
    server = {"host": host, "port": 0}
    alone = [("grpc.use_local_subchannel_pool", 1)]
    async with serving(server=server) as wire, AsyncExitStack() as stack:
        found = partial(wire.gauge, "connections", listener="inference")
        assert found() == 0
        at = "[::1]" if host == "::1" else "127.0.0.1"
        target = f"{at}:{wire.service.listeners.port}"
        for _ in range(3):
            channel = grpc.aio.insecure_channel(target, options=alone)
            await stack.enter_async_context(channel)
            await InferenceServiceStub(channel).GetModelInfo(pb.GetModelInfoRequest())
        await wire.until(lambda: found() == 3)
        await stack.aclose()
        await wire.until(lambda: found() == 0)
        assert wire.gauge("connections", listener="admin") == 0


async def test_the_endpoint_is_at_one_path_and_is_only_read() -> None:
    async with serving(metrics={"enabled": True, "port": 0}) as wire:
        port = wire.service.listeners.metrics_port
        ask_it = partial(asyncio.to_thread, read, port)
        status, headers, page = await ask_it("/metrics")
        assert status == 200
        assert "walkway_engine_up" in page
        status, empty_headers, empty = await ask_it("/metrics", "HEAD")
        assert (status, empty) == (200, "")
        assert empty_headers["Content-Type"] == headers["Content-Type"]
        assert abs(int(empty_headers["Content-Length"]) - len(page)) < 100  # numbers grow
        for path in ("/", "/metrics/", "/favicon.ico", "/health", "/metricsx"):
            status, _, text = await ask_it(path)
            assert (status, text) == (404, "metrics are at /metrics\n")
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            status, headers, _ = await ask_it("/metrics", method)
            assert (status, headers["Allow"]) == (405, "GET, HEAD")
        _, _, some = await ask_it("/metrics?name[]=walkway_engine_up")
        assert families(samples(some)) == {"walkway_engine_up"}


async def test_a_scraper_that_says_nothing_or_leaves_is_no_line_on_stderr(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with serving(metrics={"enabled": True, "port": 0}) as wire:
        port = wire.service.listeners.metrics_port
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as scraper:
                reset = struct.pack("ii", 1, 0)
                scraper.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                scraper.sendall(b"GET /met")
        await asyncio.sleep(0.3)
    assert "Traceback" not in capfd.readouterr().err
