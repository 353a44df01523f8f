"""Many callers at once, who are killed or leave: nothing of them stays."""

import asyncio
import sys
from collections import Counter
from random import Random
from typing import Any

import grpc
from structlog.testing import capture_logs

from protos.walkway.v1 import inference_pb2 as pb
from service.engine_process import Built
from service.settings import Settings
from tests.wire import Wire, ask, collect, serving, toy_build

Code = grpc.StatusCode

PAGES, HOST_PAGES = 40, 40
STREAMS, UNARY = 30, 6
CLIENT = f"""
import asyncio, sys
import grpc
from protos.walkway.v1.inference_pb2_grpc import InferenceServiceStub
from tests.wire import ask, collect

async def call_all():
    async with grpc.aio.insecure_channel(sys.argv[1]) as channel:
        stub = InferenceServiceStub(channel)
        request = ask(max_tokens=150)
        streams = [collect(stub.GenerateStream(request)) for _ in range({STREAMS})]
        calls = [stub.Generate(request) for _ in range({UNARY})]
        await asyncio.gather(*streams, *calls)

asyncio.run(call_all())
"""
MIXED, AT_ONCE = 1000, 50
ENDINGS = {"OK", Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.INVALID_ARGUMENT}


async def nothing_is_left(wire: Wire) -> None:
    """Pages, gauges and queues are as they were at the start."""
    await wire.settled()
    await wire.until(lambda: len(wire.service.streams) == 0)
    assert wire.gauge("requests", state="swapped") == 0
    assert wire.gauge("kv_used_slots") == 0
    pages = [wire.gauge("kv_pages", state=state) for state in ("free", "cached")]
    assert sum(pages) == PAGES
    assert (wire.service.admission.requests, wire.service.admission.tokens) == (0, 0)


async def test_a_client_process_that_is_killed_with_all_its_calls_leaves_nothing() -> None:
    slow = toy_build(PAGES, step_s=0.04)
    async with serving(slow, engine={"max_rows": 24}) as wire:
        target = f"127.0.0.1:{wire.service.listeners.port}"
        client = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, target)
        try:
            await wire.until(lambda: len(wire.service.streams) == STREAMS + UNARY)
            await wire.until(lambda: wire.gauge("requests", state="waiting") > 0)
            assert wire.gauge("requests", state="running") > 0
        finally:
            client.kill()
            await client.wait()
        await nothing_is_left(wire)
        cancelled = wire.gauge("requests_finished_total", finish="cancelled")
        assert cancelled == STREAMS + UNARY
        assert (await wire.stub.Generate(ask())).summary.usage.output_tokens == 8


def mixed(dice: Random) -> pb.GenerateRequest:
    """One request in forty asks for what nobody may have."""
    if dice.random() < 1 / 40:
        return ask(sampling=pb.Sampling(temperature=-1.0))
    text = "shared " * dice.randrange(4) + "x" * dice.randint(1, 40)
    stopping = pb.Stopping(stop_strings=["e"] if dice.random() < 0.2 else [])
    return ask(
        text,
        max_tokens=dice.choice((0, 1, 3, 9, 27)),
        stopping=stopping,
        priority=dice.randrange(16),
        tenant=dice.choice("abc"),
        sampling=pb.Sampling(temperature=dice.choice((0.0, 1.0)), seed=dice.randrange(9)),
    )


async def one(wire: Wire, dice: Random) -> str | Code:
    """How a call ended, a fifth of which leave early and some of which have no time."""
    request, timeout_s = mixed(dice), 0.01 if dice.random() < 0.05 else None
    call: Any
    if dice.random() < 0.7:
        call = wire.stub.Generate(request, timeout=timeout_s)
        answer = asyncio.ensure_future(call)
    else:
        call = wire.stub.GenerateStream(request, timeout=timeout_s)
        answer = asyncio.ensure_future(collect(call))
    if dice.random() < 0.2:
        asyncio.get_running_loop().call_later(dice.random() * 0.05, call.cancel)
    try:
        await answer
    except grpc.aio.AioRpcError as error:
        return error.code()
    except asyncio.CancelledError:
        return Code.CANCELLED
    return "OK"


async def test_after_a_thousand_mixed_requests_all_is_as_at_the_start() -> None:
    chosen = {"name": "priority", "options": {"eviction": "swap"}}
    engines: list[Built] = []

    def pressed(settings: Settings) -> Built:
        engines.append(toy_build(PAGES, step_s=0.002, host=HOST_PAGES)(settings))
        return engines[-1]

    with capture_logs() as logs:
        async with serving(pressed, scheduler=chosen) as wire:
            turns = asyncio.Semaphore(AT_ONCE)

            async def in_turn(number: int) -> str | Code:
                async with turns:
                    return await one(wire, Random(number))

            endings = Counter(await asyncio.gather(*map(in_turn, range(MIXED))))
            assert endings.keys() == ENDINGS
            await nothing_is_left(wire)
            assert wire.gauge("preemptions_total", mode="swap", cause="priority") > 0
            assert engines[0].core.residency.host.free_pages == HOST_PAGES
    assert not [line for line in logs if line["log_level"] == "error"]
