"""Engines that break, servers that drain and connections that are silent."""

import asyncio
import time
from collections.abc import Sequence

import grpc
import pytest
from grpc_health.v1 import health_pb2

from models.batch import StepBatch
from models.toy import ToyTokenizer
from protos.walkway.v1 import inference_pb2 as pb
from service.server import SERVICE
from tests.engine_builds import KILL, SLEEP, touchy
from tests.wire import (
    ask,
    collect,
    first_message,
    health_of,
    retry_s,
    serving,
    status_of,
    toy_build,
)

pytestmark = pytest.mark.alone
Code = grpc.StatusCode


async def test_a_step_that_raises_ends_its_rows_and_the_next_request_is_served() -> None:
    def break_on_bang(batch: StepBatch) -> None:
        if any(row.prompt[0] == ord("!") for row in batch.rows):
            raise RuntimeError("the toy broke")

    async with serving(toy_build(before=break_on_bang)) as wire:
        error = await status_of(wire.stub.Generate(ask("!")))
        assert error.code() is Code.INTERNAL
        assert "the toy broke" in (error.details() or "")
        assert (await wire.stub.Generate(ask())).summary.usage.output_tokens == 8


async def test_an_error_of_the_servers_own_is_counted_as_one() -> None:
    class Broken(ToyTokenizer):
        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            if text == "!":
                raise RuntimeError("another bug")
            return super().encode(text)

        def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
            raise RuntimeError("a bug")

    async with serving(tokenizer=Broken()) as wire:
        error = await status_of(wire.stub.Generate(ask()))
        assert error.code() is Code.INTERNAL
        assert "bug" not in (error.details() or "")
        assert wire.gauge("requests_finished_total", finish="failed") == 1
        assert wire.gauge("requests_finished_total", finish="cancelled") == 0
        assert (await status_of(wire.stub.Generate(ask("!")))).code() is Code.INTERNAL
        assert wire.gauge("requests_refused_total", code="INTERNAL") == 1
        assert (wire.service.admission.requests, len(wire.service.streams)) == (0, 0)
        await wire.settled()


@pytest.mark.parametrize("end", [KILL, SLEEP], ids=["killed", "frozen"])
async def test_an_engine_that_dies_ends_its_streams_and_comes_back(end: int) -> None:
    engine = {"isolation": "process", "restart_backoff_s": 0.2, "stall_timeout_s": 1.0}
    async with serving(touchy, engine=engine) as wire:
        stream = wire.stub.GenerateStream(ask(max_tokens=4000))
        await first_message(stream)
        killer = wire.stub.GenerateStream(ask(token_ids=pb.TokenIds(ids=[end])))
        both = asyncio.gather(collect(stream), collect(killer), return_exceptions=True)
        for error in await asyncio.wait_for(both, 20):
            assert isinstance(error, grpc.aio.AioRpcError)
            assert error.code() is Code.UNAVAILABLE
            assert retry_s(error) > 0
        assert await health_of(wire) == health_pb2.HealthCheckResponse.NOT_SERVING
        assert wire.gauge("requests", state="running") == 0
        for call in (
            wire.stub.Generate(ask()),
            wire.stub.Tokenize(pb.TokenizeRequest(text="x")),
            wire.stub.GetModelInfo(pb.GetModelInfoRequest()),
        ):
            error = await status_of(call)
            assert error.code() is Code.UNAVAILABLE
            assert retry_s(error) > 0
        await wire.until(lambda: wire.gauge("engine_up") == 1)
        assert wire.gauge("kv_pages", state="free") == 4095
        assert await health_of(wire) == health_pb2.HealthCheckResponse.SERVING
        assert (await wire.stub.Generate(ask())).summary.usage.output_tokens == 8
        assert wire.gauge("engine_restarts_total") == 1


async def test_draining_refuses_new_calls_and_lets_running_ones_finish() -> None:
    async with serving(toy_build(step_s=0.005)) as wire:
        call = wire.stub.GenerateStream(ask(max_tokens=40))
        await first_message(call)
        draining = asyncio.create_task(wire.service.drain())
        await asyncio.sleep(0)
        assert await health_of(wire, SERVICE) == health_pb2.HealthCheckResponse.NOT_SERVING
        error = await status_of(wire.stub.Generate(ask()))
        assert error.code() is Code.UNAVAILABLE
        assert retry_s(error) > 0
        messages = await collect(call)
        assert messages[-1].summary.usage.output_tokens == 40
        await asyncio.wait_for(draining, 1)


async def test_what_does_not_finish_within_the_grace_ends_with_a_status() -> None:
    async with serving(toy_build(step_s=0.005), server={"grace_s": 0.1}) as wire:
        call = wire.stub.GenerateStream(ask(max_tokens=4000))
        await first_message(call)
        await wire.service.drain()
        error = await status_of(collect(call))
        assert error.code() is Code.UNAVAILABLE
        assert "shut down" in (error.details() or "")


async def silent_stream(pings_every_s: float) -> int:
    """Messages of a stream that is silent while its client pings as often as gRPC lets it,
    which is once a second: after 4.6 s there were four pings too early."""

    def sleep(batch: StepBatch) -> None:
        if not batch.rows[0].output:
            time.sleep(4.6)

    options = [
        ("grpc.keepalive_time_ms", 100),
        ("grpc.keepalive_timeout_ms", 5000),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    limits = {"keepalive_min_ping_s": pings_every_s}
    async with serving(toy_build(before=sleep), options=options, server=limits) as wire:
        return len(await collect(wire.stub.GenerateStream(ask(max_tokens=1))))


async def test_a_connection_lives_through_a_silence_if_it_pings_no_more_than_it_may() -> None:
    allowed, too_often = await asyncio.gather(
        silent_stream(0.5), silent_stream(60.0), return_exceptions=True
    )
    assert allowed == 2
    assert isinstance(too_often, grpc.aio.AioRpcError)
    assert too_often.code() is Code.UNAVAILABLE
    assert "ping" in (too_often.details() or "")
