"""Connections and the file descriptors that they take."""

import asyncio
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest

from protos.walkway.v1 import inference_pb2 as pb
from protos.walkway.v1.inference_pb2_grpc import InferenceServiceStub
from service.descriptors import LEAST, RESERVED, connections_of
from tests.test_app import Running, running
from tests.wire import Wire, ask, serving, status_of

Code = grpc.StatusCode
OWN = [("grpc.use_local_subchannel_pool", 1)]
ASKED = pb.GetModelInfoRequest()


def another(wire: Wire) -> grpc.aio.Channel:
    target = f"127.0.0.1:{wire.service.listeners.port}"
    return grpc.aio.insecure_channel(target, options=OWN)


async def test_a_connection_above_the_limit_is_closed_until_another_is() -> None:
    async with serving(server={"max_connections": 2}) as wire:
        first, second, third = (another(wire) for _ in range(3))
        for channel in (first, second):
            await InferenceServiceStub(channel).GetModelInfo(ASKED)
        error = await status_of(InferenceServiceStub(third).GetModelInfo(ASKED))
        assert error.code() is Code.UNAVAILABLE
        await first.close()
        answer = InferenceServiceStub(third).GetModelInfo(ASKED, wait_for_ready=True)
        assert (await asyncio.wait_for(answer, 10)).model == "toy"
        for channel in (second, third):
            await channel.close()


async def test_an_idle_connection_is_closed_and_opened_again_by_the_next_call() -> None:
    async with serving(server={"connection_idle_s": 0.3}) as wire:
        await wire.stub.GetModelInfo(ASKED)
        assert wire.channel.get_state() is grpc.ChannelConnectivity.READY
        streaming = wire.stub.GenerateStream(ask(max_tokens=400))
        messages = [message async for message in streaming]
        assert messages[-1].summary.usage.output_tokens == 400
        await wire.until(
            lambda: wire.channel.get_state() is not grpc.ChannelConnectivity.READY, 10
        )
        assert (await wire.stub.GetModelInfo(ASKED)).model == "toy"


def test_what_is_reserved_is_kept_from_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(soft: int) -> None:
        monkeypatch.setattr(resource, "getrlimit", lambda what: (soft, soft))

    limited(RESERVED + 100)
    assert connections_of(4096) == 100
    assert connections_of(50) == 50
    limited(20)
    assert connections_of(4096) == LEAST
    limited(resource.RLIM_INFINITY)
    assert connections_of(4096) == 4096


@contextmanager
def few_descriptors(most: int) -> Iterator[None]:
    """For processes that are started meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def limit(service: Running, soft: int) -> None:
    hard = resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (soft, hard))


def serves(service: Running, limit_s: float = 30.0) -> bool:
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        try:
            return bool(service.stub.Generate(ask(max_tokens=1), timeout=5).summary.request_id)
        except grpc.RpcError:
            time.sleep(0.2)
    return False


def test_a_service_may_have_as_many_descriptors_as_the_system_allows() -> None:
    with few_descriptors(64), running() as service:
        soft, hard = resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard > 64
        assert serves(service)


def test_an_engine_comes_back_while_others_hold_all_connections_that_there_are() -> None:
    with running("engine.restart_backoff_s=0.1", "server.max_connections=40") as service:
        ports = [int(str(service.started[port])) for port in ("port", "admin_port")]
        held = [socket.create_connection(("127.0.0.1", p)) for p in ports for _ in range(200)]
        try:
            time.sleep(0.3)
            used = len(os.listdir(f"/proc/{service.process.pid}/fd"))
            assert used < 200
            os.kill(service.engine_pid(), signal.SIGKILL)
            assert service.until("engine_ready")["generation"] == 2
        finally:
            for one in held:
                one.close()


def test_a_start_without_descriptors_is_tried_again_and_is_no_death_of_the_engine() -> None:
    deaths = ("engine.max_deaths=2", "engine.restart_backoff_s=0.1")
    with running(*deaths) as service:
        assert serves(service)
        used = len(os.listdir(f"/proc/{service.process.pid}/fd"))
        pid = service.engine_pid()
        limit(service, used + 1)
        os.kill(pid, signal.SIGKILL)
        for _ in range(4):
            assert "Too many open files" in str(service.until("engine_start_failed")["why"])
        limit(service, used + 200)
        assert service.until("engine_ready")["generation"] > 4
        assert serves(service)
        assert len(os.listdir(f"/proc/{service.process.pid}/fd")) <= used + 4
