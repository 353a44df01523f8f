"""What a call held is free once it is over, without the garbage collector: else the prompts of
refused calls add up until the next full collection."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import structlog

from models.batch import StepBatch
from models.toy import ToyTokenizer
from protos.walkway.v1 import inference_pb2 as pb
from service.logs import configure_logs
from service.settings import Log
from tests.wire import Wire, ask, serving, toy_build

PAGE_BYTES = 4096
OF_A_CALL = {
    *("frame", "traceback", "coroutine", "async_generator", "Task", "Future"),
    *("AbortError", "InvalidArgument", "Expired", "Cancelled", "Internal", "Unavailable"),
    *("GenerateRequest", "Call", "Stream", "Submit", "TextStream", "Delivery", "Messages"),
}
"""gRPC's own five small objects a call, which are the same whatever it carries, are not."""
LONG = ask("x" * 100, max_tokens=4000)
BAD = ask(sampling=pb.Sampling(temperature=50.0))


class Broken(ToyTokenizer):
    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        raise RuntimeError("a bug")


def break_on_bang(batch: StepBatch) -> None:
    if any(row.prompt[0] == ord("!") for row in batch.rows):
        raise RuntimeError("the toy broke")


async def whole(wire: Wire, request: pb.GenerateRequest, **options: Any) -> None:
    with suppress(grpc.aio.AioRpcError):
        await wire.stub.Generate(request, **options)


async def streamed(wire: Wire, request: pb.GenerateRequest, **options: Any) -> None:
    with suppress(grpc.aio.AioRpcError):
        async for _ in wire.stub.GenerateStream(request, **options):
            pass


async def left(wire: Wire, request: pb.GenerateRequest) -> None:
    call = wire.stub.GenerateStream(request)
    await call.read()
    call.cancel()


async def failed(wire: Wire, how: Callable[..., Awaitable[None]]) -> None:
    await how(wire, ask("!"))
    await whole(wire, ask())  # else three steps in a row raise, and the engine ends


async def shut_down(wire: Wire, request: pb.GenerateRequest) -> None:
    calls = asyncio.gather(*(streamed(wire, request) for _ in range(3)))
    await wire.until(lambda: len(wire.service.streams) == 3)
    await wire.service.drain()
    await calls
    wire.service.streams.draining = False


KINDS: dict[str, Callable[[Wire], Coroutine[Any, Any, None]]] = {
    "refused": lambda wire: whole(wire, BAD),
    "refused stream": lambda wire: streamed(wire, BAD),
    "answered": lambda wire: whole(wire, ask()),
    "streamed": lambda wire: streamed(wire, ask()),
    "expired": lambda wire: whole(wire, LONG, timeout=0.05),
    "expired stream": lambda wire: streamed(wire, LONG, timeout=0.05),
    "timed out": lambda wire: streamed(wire, LONG),
    "cancelled": lambda wire: left(wire, LONG),
    "failed": lambda wire: failed(wire, whole),
    "failed stream": lambda wire: failed(wire, streamed),
    "shut down": lambda wire: shut_down(wire, LONG),
}


@contextmanager
def garbage_kept() -> Iterator[list[Any]]:
    """What only the collector would free, by the end of the block."""
    gc.collect()
    gc.disable()
    found: list[Any] = []
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def over(wire: Wire) -> None:
    await wire.until(lambda: len(wire.service.streams) == 0)
    await wire.settled()
    await asyncio.sleep(0.05)


def kinds_of(garbage: list[Any]) -> set[str]:
    return {type(item).__name__ for item in garbage} & OF_A_CALL


@pytest.fixture(autouse=True)
def plain_log() -> Iterator[None]:
    """Rich's tracebacks make garbage of their own."""
    configure_logs(Log(format="json"))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_leaves_no_cycle_behind(kind: str) -> None:
    build = toy_build(step_s=0.002, before=break_on_bang)
    limits = {"request_timeout_s": 0.3, "grace_s": 0.05}
    async with serving(build, server=limits) as wire:
        await KINDS[kind](wire)
        await over(wire)
        with garbage_kept() as garbage:
            for _ in range(3):
                await KINDS[kind](wire)
            await over(wire)
        assert not kinds_of(garbage)


async def test_an_error_of_the_servers_own_leaves_no_cycle_behind() -> None:
    async with serving(toy_build(), tokenizer=Broken()) as wire:
        with garbage_kept() as garbage:
            for _ in range(3):
                await whole(wire, ask())
                await streamed(wire, ask())
            await over(wire)
        assert not kinds_of(garbage)


@pytest.mark.parametrize("end", ["refused", "expired"])
async def test_a_thousand_large_calls_keep_no_memory_with_the_collector_off(end: str) -> None:
    """Each carries 100 KB, so all of them would keep 100 MB."""
    chat = pb.Chat(messages=[pb.ChatMessage(role="user", content="hi")])
    chat.messages.extend([pb.ChatMessage(role="x" * 1000, content="")] * 100)
    good = ask(chat=chat, max_tokens=4000)
    bad = ask(chat=chat, sampling=pb.Sampling(temperature=50.0))
    raw = (bad if end == "refused" else good).SerializeToString()
    options = {} if end == "refused" else {"timeout": 0.05}

    class Short(ToyTokenizer):
        def chat(self, messages: object, add_generation_prompt: bool = True) -> list[int]:
            return [104, 105]

    async with serving(toy_build(step_s=0.005), tokenizer=Short()) as wire:
        method = "/walkway.v1.InferenceService/Generate"
        call: Callable[..., Awaitable[bytes]] = wire.channel.unary_unary(method)

        async def repeat(times: int) -> None:
            for _ in range(times):
                with suppress(grpc.aio.AioRpcError):
                    await call(raw, **options)

        async def calls(number: int) -> None:
            await asyncio.gather(*(repeat(number // 20) for _ in range(20)))
            await over(wire)

        await calls(100)
        gc.collect()
        gc.disable()
        try:
            before = resident_bytes()
            await calls(1000)
            assert resident_bytes() - before < 20e6
        finally:
            gc.enable()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
