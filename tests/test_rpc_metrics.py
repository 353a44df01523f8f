"""Rate, errors and duration of methods: what is counted is what callers were told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

from protos.descriptors import descriptor_set, methods
from protos.walkway.v1 import admin_pb2
from protos.walkway.v1 import inference_pb2 as pb
from service.metrics.families import Families
from service.metrics.rpcs import UNKNOWN, RpcMetrics, RpcWatch
from tests.wire import ask, collect, first_message, health_of, serving, status_of

METHODS = methods(descriptor_set())
SERVICE = "walkway.v1.InferenceService"
UNARY, STREAM = f"{SERVICE}/Generate", f"{SERVICE}/GenerateStream"


class Counted:
    """Samples of a registry by their short names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def __call__(self, name: str, **labels: str) -> float:
        return self._registry.get_sample_value(f"walkway_rpc_{name}", labels) or 0.0

    def codes(self, method: str) -> dict[str, float]:
        """Of the calls that ended."""
        codes = [code.name for code in grpc.StatusCode]
        found = {code: self("finished_total", method=method, code=code) for code in codes}
        return {code: count for code, count in found.items() if count}

    async def until_open(self, calls: int) -> None:
        """Of the unary method."""
        async with asyncio.timeout(10):
            while self("open", method=UNARY) != calls:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def behave(request: bytes, context: Any) -> bytes:
    """What a caller asks of a handler."""
    match request:
        case b"abort":
            await context.abort(grpc.StatusCode.NOT_FOUND, "asked to")
        case b"set":
            context.set_code(grpc.StatusCode.DATA_LOSS)
        case b"raise":
            raise RuntimeError("asked to")
        case b"wait":
            await asyncio.sleep(30)
        case b"large":
            return bytes(3 << 20)
    return b"answer"


async def writer(request: bytes, context: Any) -> None:
    await context.write(b"first")
    await context.write(await behave(request, context))


async def generator(request: bytes, context: Any) -> AsyncIterator[bytes]:
    yield b"first"
    while True:
        yield await behave(request, context)
        if request != b"large":
            return


async def takes_all(requests: AsyncIterator[bytes], context: Any) -> bytes:
    return [await behave(request, context) async for request in requests][-1]


async def chats(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield await behave(request, context)


async def one(request: bytes) -> AsyncIterator[bytes]:
    yield request


STYLES: dict[str, Callable[[], Any]] = {
    "unary": lambda: grpc.unary_unary_rpc_method_handler(behave),
    "writer": lambda: grpc.unary_stream_rpc_method_handler(writer),
    "generator": lambda: grpc.unary_stream_rpc_method_handler(generator),
    "takes all": lambda: grpc.stream_unary_rpc_method_handler(takes_all),
    "chats": lambda: grpc.stream_stream_rpc_method_handler(chats),
}


@asynccontextmanager
async def watched(style: str) -> AsyncIterator[tuple[Callable[..., Any], Counted]]:
    """A server with one method of that style, and how to call it."""
    registry = CollectorRegistry()
    server = grpc.aio.server(interceptors=[RpcWatch(RpcMetrics(Families(registry), METHODS))])
    handler = STYLES[style]()
    generic = grpc.method_handlers_generic_handler(SERVICE, {"Generate": handler})
    server.add_generic_rpc_handlers((generic,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            kinds = ("unary", "stream")
            kind = "_".join(
                (kinds[handler.request_streaming], kinds[handler.response_streaming])
            )
            multi = getattr(channel, kind)(f"/{UNARY}")

            def call(word: bytes, timeout: float | None = None) -> Any:
                argument = one(word) if handler.request_streaming else word
                return multi(argument, timeout=timeout)

            yield call, Counted(registry)
    finally:
        await server.stop(0)


async def answers(call: Any) -> list[bytes]:
    return [message async for message in call] if hasattr(call, "read") else [await call]


@pytest.mark.parametrize("style", STYLES)
async def test_a_call_is_counted_with_the_code_that_its_caller_got(style: str) -> None:
    async with watched(style) as (call, counted):
        assert (await answers(call(b"")))[-1] == b"answer"
        told = ["OK"]
        for word in (b"abort", b"set", b"raise", b"wait"):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await answers(call(word, timeout=0.2 if word == b"wait" else None))
            told.append(caught.value.code().name)
        leaving = asyncio.create_task(answers(call(b"wait")))
        await counted.until_open(1)
        await asyncio.sleep(0.05)  # past the first answer
        leaving.cancel()
        told.append("CANCELLED")
        await counted.until_open(0)
        errors = ["NOT_FOUND", "DATA_LOSS", "UNKNOWN", "DEADLINE_EXCEEDED", "CANCELLED"]
        assert told == ["OK", *errors]
        assert counted.codes(UNARY) == dict.fromkeys(told, 1)
        assert counted("started_total", method=UNARY) == len(told)
        assert counted("seconds_count", method=UNARY) == len(told)
        assert counted("seconds_sum", method=UNARY) >= 0.2


async def test_a_generator_that_waits_for_its_reader_ends_when_that_leaves() -> None:
    async with watched("generator") as (call, counted):
        reading = call(b"large")
        await reading.read()
        await asyncio.sleep(0.2)  # gRPC holds the second back: nobody reads it
        assert counted("open", method=UNARY) == 1
        reading.cancel()
        await counted.until_open(0)
        assert counted.codes(UNARY) == {"CANCELLED": 1}


async def test_a_reader_that_leaves_before_the_end_ends_the_call_at_once() -> None:
    async with serving() as wire:
        counted = Counted(wire.service.metrics.registry)
        call = wire.stub.GenerateStream(ask(max_tokens=3000))
        await first_message(call)
        assert counted("open", method=STREAM) == 1
        call.cancel()
        await wire.until(lambda: counted("open", method=STREAM) == 0)
        assert counted.codes(STREAM) == {"CANCELLED": 1}
        await wire.settled()
        assert wire.gauge("requests_finished_total", finish="cancelled") == 1


async def test_every_method_of_both_ports_is_counted_and_takes_as_long_as_it_streams() -> None:
    async with serving(metrics={"enabled": True, "port": 0}) as wire:
        counted = Counted(wire.service.metrics.registry)
        await wire.stub.Generate(ask())
        await collect(wire.stub.GenerateStream(ask(max_tokens=100)))
        await status_of(wire.stub.Generate(ask(max_tokens=-1 & 0xFFFFFFFF)))
        await wire.stub.Tokenize(pb.TokenizeRequest(text="hello"))
        await wire.stub.Detokenize(pb.DetokenizeRequest(token_ids=[65]))
        await wire.stub.GetModelInfo(pb.GetModelInfoRequest())
        await health_of(wire)
        await wire.admin.GetScheduler(admin_pb2.GetSchedulerRequest())
        await status_of(wire.admin.SetScheduler(admin_pb2.SetSchedulerRequest(name="none")))
        await status_of(wire.channel.unary_unary("/other.Service/Method")(b""))
        assert counted.codes(UNARY) == {"OK": 1, "INVALID_ARGUMENT": 1}
        assert counted.codes(STREAM) == {"OK": 1}
        assert counted("seconds_sum", method=STREAM) > 0.1  # a millisecond a token
        for name in ("Tokenize", "Detokenize", "GetModelInfo"):
            assert counted.codes(f"{SERVICE}/{name}") == {"OK": 1}
        assert counted.codes("grpc.health.v1.Health/Check") == {"OK": 1}
        assert counted.codes("walkway.v1.AdminService/GetScheduler") == {"OK": 1}
        assert counted.codes("walkway.v1.AdminService/SetScheduler") == {"INVALID_ARGUMENT": 1}
        assert counted.codes(UNKNOWN) == {"UNIMPLEMENTED": 1}
        assert all(counted("open", method=method) == 0 for method in METHODS)
