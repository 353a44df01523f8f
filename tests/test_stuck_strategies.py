"""Over the wire, an engine in a process of its own, and a strategy that never comes back."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2

from service.build import build
from tests.misbehaving import Exits, Hangs
from tests.wire import ask, collect, first_message, health_of, serving

pytestmark = pytest.mark.alone


@pytest.mark.parametrize("strategy", [Hangs, Exits])
async def test_streams_end_unavailable_and_then_fcfs_serves(strategy: type) -> None:
    name = f"{strategy.__module__}:{strategy.__name__}"
    engine = {"isolation": "process", "restart_backoff_s": 0.1, "stall_timeout_s": 0.4}
    async with serving(build, engine=engine, scheduler={"name": name}) as wire:
        stream = wire.stub.GenerateStream(ask(max_tokens=60_000))
        await first_message(stream)
        trouble = wire.stub.GenerateStream(ask(tenant="trouble"))
        for error in await asyncio.gather(
            collect(stream), collect(trouble), return_exceptions=True
        ):
            assert isinstance(error, grpc.aio.AioRpcError)
            assert error.code() is grpc.StatusCode.UNAVAILABLE
        await wire.until(lambda: wire.gauge("engine_up") == 1, limit_s=10)
        assert await health_of(wire) == health_pb2.HealthCheckResponse.SERVING
        answer = await wire.stub.Generate(ask(tenant="trouble"))
        assert answer.summary.usage.output_tokens == 8
        state = await wire.service.desk.inspect()
        assert (state.scheduler.name, state.scheduler.replaces) == ("fcfs", name)
