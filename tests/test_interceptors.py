"""The service under interceptors that operators put around it: OpenTelemetry's, and plain ones
that expect a handler to be a coroutine or an async generator."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest
from opentelemetry.instrumentation.grpc import GrpcAioInstrumentorServer
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from protos.walkway.v1 import admin_pb2
from protos.walkway.v1 import inference_pb2 as pb
from service.logs import NotOfCallersThatLeft
from tests.wire import (
    SMALL_WINDOW,
    ask,
    bad_fields,
    collect,
    first_message,
    serving,
    status_of,
    toy_build,
    unread,
)

Code = grpc.StatusCode
Span = tuple[str, int]
"""The method's name and the status code."""


class Counting(grpc.aio.ServerInterceptor):
    """Passes answers on and counts them; sends metadata before the handler runs."""

    def __init__(self) -> None:
        self.messages = 0
        self.errors: list[str] = []

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(
                partial(self._unary, handler.unary_unary),
                handler.request_deserializer,
                handler.response_serializer,
            )

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            await context.send_initial_metadata((("x-seen", "yes"),))
            try:
                async for message in handler.unary_stream(request, context):
                    self.messages += 1
                    yield message
            except Exception as error:
                self.errors.append(type(error).__name__)
                raise

        return grpc.unary_stream_rpc_method_handler(
            stream, handler.request_deserializer, handler.response_serializer
        )

    async def _unary(self, behaviour: Callable[..., Any], request: Any, context: Any) -> Any:
        self.messages += 1
        return await behaviour(request, context)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    interceptor = Counting()
    plain = grpc.aio.server

    def around(interceptors: Sequence[Any], **options: Any) -> grpc.aio.Server:
        return plain(interceptors=[interceptor, *interceptors], **options)

    monkeypatch.setattr(grpc.aio, "server", around)
    return interceptor


@pytest.fixture
def spans() -> Iterator[Callable[[], list[Span]]]:
    """What `opentelemetry-instrument` does to a server, with the spans kept in memory."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = GrpcAioInstrumentorServer()
    instrumentor.instrument(tracer_provider=provider)
    yield lambda: [
        (span.name.rsplit("/")[-1], int((span.attributes or {})["rpc.grpc.status_code"]))
        for span in exporter.get_finished_spans()
    ]
    instrumentor.uninstrument()


async def test_opentelemetry_sees_every_kind_of_call(spans: Callable[[], list[Span]]) -> None:
    async with serving(toy_build(step_s=0.002)) as wire:
        whole = await wire.stub.Generate(ask(max_tokens=20))
        messages = await collect(wire.stub.GenerateStream(ask(max_tokens=20)))
        assert "".join(m.text for m in messages) == whole.text
        assert messages[-1].summary.usage.output_tokens == 20
        for call in (wire.stub.Generate(ask("")), collect(wire.stub.GenerateStream(ask("")))):
            error = await status_of(call)
            assert error.code() is Code.INVALID_ARGUMENT
            assert list(bad_fields(error)) == ["text"]
        statistics = wire.admin.StreamStatistics(admin_pb2.StreamStatisticsRequest())
        assert (await anext(aiter(statistics))).HasField("uptime")
        statistics.cancel()
        left = wire.stub.GenerateStream(ask(max_tokens=4000))
        await first_message(left)
        left.cancel()
        await wire.settled()
        await wire.until(lambda: len(wire.service.streams) == 0)
        assert wire.gauge("requests_finished_total", finish="cancelled") == 1
    ok, invalid = Code.OK.value[0], Code.INVALID_ARGUMENT.value[0]
    seen = Counter(spans())
    assert seen[("Generate", ok)] == seen[("Generate", invalid)] == 1
    assert seen[("GenerateStream", invalid)] == 1
    assert seen[("GenerateStream", ok)] == 2  # the last was left
    assert seen[("StreamStatistics", ok)] == 1


async def test_an_interceptor_sees_each_message_and_may_send_metadata_first(
    counting: Counting,
) -> None:
    async with serving() as wire:
        call = wire.stub.GenerateStream(ask(max_tokens=20))
        assert dict(await call.initial_metadata()) == {"x-seen": "yes"}
        assert len(await collect(call)) == counting.messages
        error = await status_of(collect(wire.stub.GenerateStream(ask(""))))
        assert error.code() is Code.INVALID_ARGUMENT
        assert counting.errors == ["AbortError"]
        assert (await wire.stub.Generate(ask())).summary.usage.output_tokens == 8


@pytest.mark.parametrize("around", ["counting", "spans"])
async def test_what_is_no_message_or_too_much_has_its_status_under_interceptors(
    around: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(around)
    limits = {"max_concurrent_calls": 1}
    unary, stream = (
        f"/walkway.v1.InferenceService/{m}" for m in ("Generate", "GenerateStream")
    )
    async with serving(server=limits) as wire:

        async def ending(raw: bytes) -> set[grpc.StatusCode]:
            first = await status_of(wire.channel.unary_unary(unary)(raw))
            await asyncio.sleep(0.05)  # its place is free a moment after its status came
            second = await status_of(collect(wire.channel.unary_stream(stream)(raw)))
            await asyncio.sleep(0.05)
            return {first.code(), second.code()}

        assert await ending(b"\xff") == {Code.INVALID_ARGUMENT}
        running = wire.stub.GenerateStream(ask(max_tokens=8000))
        await first_message(running)
        assert await ending(ask().SerializeToString()) == {Code.RESOURCE_EXHAUSTED}
        running.cancel()


@pytest.mark.parametrize("around", ["nothing", "counting", "spans"])
async def test_a_caller_that_leaves_unread_is_cleaned_up_without_an_error_in_the_log(
    around: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    if around != "nothing":
        request.getfixturevalue(around)
    grpcs, only = logging.getLogger("grpc._cython.cygrpc"), NotOfCallersThatLeft()
    grpcs.addFilter(only)
    try:
        async with serving(toy_build(step_s=0.0), SMALL_WINDOW) as wire:
            for _ in range(3):
                call = await unread(wire)
                with capture_logs() as logs:
                    call.cancel()
                    await wire.settled()
                    await wire.until(lambda: len(wire.service.streams) == 0)
                assert not [line for line in logs if line["log_level"] == "error"]
            assert wire.gauge("requests_finished_total", finish="cancelled") == 3
            await asyncio.sleep(0.05)
    finally:
        grpcs.removeFilter(only)
    assert not [r for r in caplog.records if r.name.startswith("grpc")]


@pytest.mark.parametrize("around", ["nothing", "counting", "spans"])
async def test_a_caller_that_does_not_read_in_time_gets_a_status_when_it_reads_on(
    around: str, request: pytest.FixtureRequest
) -> None:
    if around != "nothing":
        request.getfixturevalue(around)
    limits = {"request_timeout_s": 1.2}
    async with serving(toy_build(step_s=0.0), SMALL_WINDOW, server=limits) as wire:
        call = await unread(wire)
        await wire.until(lambda: len(wire.service.streams) == 0, 5)
        assert wire.gauge("requests_finished_total", finish="expired") == 1
        messages: list[pb.GenerateStreamResponse] = []
        error = await asyncio.wait_for(status_of(collect(call, messages)), 5)
        assert error.code() is Code.DEADLINE_EXCEEDED
        assert "read" in (error.details() or "")
        assert not any(message.HasField("summary") for message in messages)
        assert (await wire.stub.Generate(ask())).summary.usage.output_tokens == 8
