"""What comes before a request: too many calls, messages that are none, lines of the log."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from structlog.testing import capture_logs

from models.batch import StepBatch
from protos.walkway.v1 import admin_pb2, inference_pb2
from service.sparing import LINES
from tests.wire import (
    Wire,
    ask,
    bad_fields,
    collect,
    details,
    first_message,
    health_of,
    retry_s,
    serving,
    status_of,
    toy_build,
)

Code = grpc.StatusCode
BURST = 3000
GARBAGE = b"\xff\xff\xff"
FILES = (inference_pb2, admin_pb2, health_pb2, reflection_pb2)
METHODS = [
    (file is admin_pb2, f"/{service.full_name}/{method.name}", method.server_streaming)
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


def call_raw(
    wire: Wire, on_admin: bool, method: str, streams: bool, raw: bytes
) -> Awaitable[object]:
    channel = wire.admin_channel if on_admin else wire.channel
    if streams:
        return collect(channel.unary_stream(method)(raw))
    return channel.unary_unary(method)(raw)


@pytest.mark.parametrize(("on_admin", "method", "streams"), METHODS)
async def test_bytes_that_are_no_message_are_the_callers_mistake(
    on_admin: bool, method: str, streams: bool
) -> None:
    async with serving() as wire:
        with capture_logs() as logs:
            error = await status_of(call_raw(wire, on_admin, method, streams, GARBAGE))
        assert error.code() is Code.INVALID_ARGUMENT
        assert "3 bytes" in bad_fields(error)["message"]
        assert wire.gauge("requests_refused_total", code="INVALID_ARGUMENT") == 1
        (line,) = logs
        assert (line["event"], line["method"]) == ("call_refused", method)


async def test_a_call_without_a_message_is_the_callers_mistake() -> None:
    async def nothing() -> None:
        return
        yield

    async with serving() as wire:
        call = wire.channel.stream_unary("/walkway.v1.InferenceService/Tokenize")
        error = await status_of(call(nothing(), timeout=5))
        assert error.code() is Code.INVALID_ARGUMENT
        assert bad_fields(error) == {"message": "is missing"}


async def test_a_message_that_does_not_come_keeps_no_place() -> None:
    async def silence() -> None:
        await asyncio.sleep(5)
        yield b""

    limits = {"request_timeout_s": 0.1, "max_concurrent_calls": 1}
    async with serving(server=limits) as wire:
        call = wire.channel.stream_unary("/walkway.v1.InferenceService/Tokenize")
        error = await status_of(call(silence()))
        assert error.code() is Code.DEADLINE_EXCEEDED
        assert (await wire.stub.Tokenize(inference_pb2.TokenizeRequest(text="x"))).token_ids


@pytest.mark.parametrize("size", [150_000, 250_000], ids=["judged", "unread"])
async def test_a_message_above_the_limit_is_counted_and_has_a_line(size: int) -> None:
    async with serving(server={"max_message_bytes": 100_000}) as wire:
        with capture_logs() as logs:
            error = await status_of(wire.stub.Generate(ask("x" * size)))
            await wire.until(lambda: len(logs) == 1)
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert logs[0]["event"] == "call_refused"
        assert wire.gauge("requests_refused_total", code=logs[0]["code"]) == 1


async def test_a_call_above_the_limit_is_refused_unread_and_health_answers() -> None:
    async with serving(server={"max_concurrent_calls": 2}) as wire:
        running = [wire.stub.GenerateStream(ask(max_tokens=4000)) for _ in range(2)]
        await asyncio.gather(*map(first_message, running))
        method = "/walkway.v1.InferenceService/GetModelInfo"
        error = await status_of(call_raw(wire, False, method, False, GARBAGE))
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert retry_s(error) > 0
        assert "2 calls" in (error.details() or "")
        assert wire.gauge("requests_refused_total", code="RESOURCE_EXHAUSTED") == 1
        assert await health_of(wire) == health_pb2.HealthCheckResponse.SERVING
        for call in running:
            call.cancel()
        await wire.settled()
        await wire.until(lambda: len(wire.service.streams) == 0)
        assert (await wire.stub.Generate(ask())).summary.usage.output_tokens == 8


async def test_those_that_watch_health_leave_room_for_those_that_check_it() -> None:
    async with serving(server={"max_concurrent_calls": 2}) as wire:
        stub = health_pb2_grpc.HealthStub(wire.channel)
        watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(2)]
        for watch in watches:
            await first_message(watch)
        another = stub.Watch(health_pb2.HealthCheckRequest())
        assert (await status_of(collect(another))).code() is Code.RESOURCE_EXHAUSTED
        assert await health_of(wire) == health_pb2.HealthCheckResponse.SERVING
        for watch in watches:
            watch.cancel()


async def test_a_request_that_finds_the_queue_full_is_refused_unread() -> None:
    def sleep(batch: StepBatch) -> None:
        time.sleep(0.3)

    limits = {"max_waiting_requests": 1}
    async with serving(toy_build(before=sleep), server=limits, engine={"max_rows": 1}) as wire:
        running = wire.stub.GenerateStream(ask(max_tokens=100))
        await first_message(running)
        waiting = asyncio.create_task(collect(wire.stub.GenerateStream(ask())))
        await wire.until(lambda: wire.service.admission.requests == 1)
        method = "/walkway.v1.InferenceService/Generate"
        error = await status_of(call_raw(wire, False, method, False, GARBAGE))
        assert error.code() is Code.RESOURCE_EXHAUSTED
        running.cancel()
        waiting.cancel()


@pytest.mark.alone
async def test_of_thousands_of_calls_at_once_each_ends_with_a_status_of_ours() -> None:
    async with serving(server={"max_waiting_requests": 64}, engine={"max_rows": 4}) as wire:
        target = f"127.0.0.1:{wire.service.listeners.port}"
        command = [sys.executable, "-m", "bench.burst", "--client", target]
        client = await asyncio.create_subprocess_exec(
            *command, "--calls", str(BURST), stdout=asyncio.subprocess.PIPE
        )
        ending = asyncio.ensure_future(client.communicate())
        checks_s = []
        with capture_logs():
            while not ending.done():
                began_s = time.monotonic()
                await health_of(wire)
                checks_s.append(time.monotonic() - began_s)
                await asyncio.sleep(0.01)
        endings = json.loads(ending.result()[0])
        assert sum(endings.values()) == BURST
        assert endings.keys() == {"OK", "RESOURCE_EXHAUSTED with details"}
        assert max(checks_s) < 0.5
        refused = endings["RESOURCE_EXHAUSTED with details"]
        assert wire.gauge("requests_refused_total", code="RESOURCE_EXHAUSTED") == refused


async def test_of_many_refusals_some_are_written_and_the_rest_is_counted() -> None:
    many = 3 * LINES
    async with serving() as wire:
        with capture_logs() as logs:
            calls = [wire.stub.Generate(ask(priority=16)) for _ in range(many)]
            await asyncio.gather(*calls, return_exceptions=True)
            await wire.until(lambda: logs[-1]["event"] == "lines_left_out")
        written = [line for line in logs if line["event"] == "request_refused"]
        left_out = sum(
            line["counts"]["INVALID_ARGUMENT"]
            for line in logs
            if line["event"] == "lines_left_out"
        )
        assert len(written) < many
        assert len(written) + left_out == many
        assert wire.gauge("requests_refused_total", code="INVALID_ARGUMENT") == many


async def test_what_tokenize_detokenize_and_the_operators_port_refuse_has_a_line() -> None:
    async with serving() as wire:
        with capture_logs() as logs:
            errors = [
                await status_of(wire.stub.Tokenize(inference_pb2.TokenizeRequest())),
                await status_of(
                    wire.stub.Detokenize(inference_pb2.DetokenizeRequest(token_ids=[300]))
                ),
                await status_of(
                    wire.admin.ListRequests(admin_pb2.ListRequestsRequest(limit=2**31))
                ),
            ]
            await wire.until(lambda: len(logs) == 3)
    assert {line["event"] for line in logs} == {"call_failed"}
    assert {line["code"] for line in logs} == {"INVALID_ARGUMENT"}
    assert {line["reason"] for line in logs} == {error.details() for error in errors}
    names = {line["method"].rpartition("/")[2] for line in logs}
    assert names == {"Tokenize", "Detokenize", "ListRequests"}
    assert all(details(error).details for error in errors)
