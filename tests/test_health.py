"""`grpc.health.v1` as balancers, Kubernetes and people ask it."""

import asyncio
import os
import signal
import time

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from grpc_health.v1 import health_pb2, health_pb2_grpc

from service.health import LIVE, READY, Health
from service.healthcheck import health as asked
from service.server import ADMIN, SERVICE
from tests.engine_builds import touchy
from tests.test_supervisor import engine_pid
from tests.wire import Wire, ask, first_message, health_of, serving, status_of, toy_build

Response = health_pb2.HealthCheckResponse
Request = health_pb2.HealthCheckRequest
UP, OUT = Response.SERVING, Response.NOT_SERVING


def watch(wire: Wire, name: str) -> grpc.aio.UnaryStreamCall:
    return health_pb2_grpc.HealthStub(wire.channel).Watch(Request(service=name))


def listed(data: bytes) -> dict[str, int]:
    """A HealthListResponse, read as the health protocol defines it: a map is entries of key
    and value, each field of which is `tag length bytes`, short enough for one byte each."""
    found: dict[str, int] = {}
    while data:
        (tag, size), data = data[:2], data[2:]
        entry, data = data[:size], data[size:]
        assert tag == 0x0A
        key_size = entry[1]
        key, value = entry[2 : 2 + key_size], entry[2 + key_size :]
        assert (entry[0], value[0], value[1]) == (0x0A, 0x12, len(value) - 2)
        found[key.decode()] = Response.FromString(value[2:]).status
    return found


async def list_of(channel: grpc.aio.Channel) -> dict[str, int]:
    call = channel.unary_unary(
        "/grpc.health.v1.Health/List", request_serializer=Empty.SerializeToString
    )
    return listed(await call(Empty()))


async def test_every_name_is_told_and_all_of_them_are_listed() -> None:
    async with serving() as wire:
        for name in ("", READY, LIVE, SERVICE):
            assert await health_of(wire, name) == UP
        assert await list_of(wire.channel) == {"": UP, READY: UP, LIVE: UP, SERVICE: UP}
        assert await list_of(wire.admin_channel) == {"": UP, READY: UP, LIVE: UP, ADMIN: UP}
        error = await status_of(
            health_pb2_grpc.HealthStub(wire.channel).Check(Request(service="x"))
        )
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert "live, ready" in (error.details() or "")
        unknown = watch(wire, "x")
        assert (await unknown.read()).status == Response.SERVICE_UNKNOWN
        unknown.cancel()


async def test_a_restart_of_the_engine_turns_readiness_and_not_liveness() -> None:
    engine = {"isolation": "process", "restart_backoff_s": 0.3}
    async with serving(touchy, engine=engine) as wire:
        ready, live = watch(wire, READY), watch(wire, LIVE)
        assert [(await w.read()).status for w in (ready, live)] == [UP, UP]
        os.kill(engine_pid(), signal.SIGKILL)
        assert (await ready.read()).status == OUT
        assert await list_of(wire.channel) == {"": OUT, READY: OUT, LIVE: UP, SERVICE: OUT}
        assert await list_of(wire.admin_channel) == {"": OUT, READY: OUT, LIVE: UP, ADMIN: OUT}
        assert (await ready.read()).status == UP
        second = asyncio.create_task(live.read())
        await asyncio.sleep(0.05)
        assert not second.done(), "liveness did not change"
        ready.cancel()
        live.cancel()


async def test_a_service_that_loads_is_live_and_not_ready() -> None:
    health = Health(SERVICE)
    assert (health._shown[LIVE], health._shown[READY]) == (UP, OUT)
    health.drain()
    health.show(True)
    assert (health._shown[LIVE], health._shown[READY]) == (UP, OUT), "nothing undoes a drain"


async def test_a_watcher_that_leaves_or_does_not_read_keeps_no_news_from_others() -> None:
    async with serving() as wire:
        leaver, silent, reader = (watch(wire, READY) for _ in range(3))
        for each in (leaver, silent, reader):
            await each.read()
        leaver.cancel()
        for serves in [False, True] * 500:
            wire.service.listeners.show(serves)
            await asyncio.sleep(0)
        wire.service.listeners.show(False)
        async with asyncio.timeout(5):
            while (await reader.read()).status != OUT or await health_of(wire) != OUT:
                pass
        silent.cancel()
        reader.cancel()


@pytest.mark.parametrize("name", ["", LIVE, READY])
async def test_an_open_watch_does_not_delay_the_exit(name: str) -> None:
    async with serving() as wire:
        watching = watch(wire, name)
        await watching.read()
        began_s = time.monotonic()
        await wire.service.stop()
        assert time.monotonic() - began_s < 0.5


async def test_a_container_s_check_may_ask_for_either_name() -> None:
    async with serving(toy_build(step_s=0.005)) as wire:
        target = f"127.0.0.1:{wire.service.listeners.port}"
        call = wire.stub.GenerateStream(ask(max_tokens=100))
        await first_message(call)
        draining = asyncio.create_task(wire.service.drain())
        await asyncio.sleep(0)
        assert await asyncio.to_thread(asked, target) == "NOT_SERVING"
        assert await asyncio.to_thread(asked, target, LIVE) == "SERVING"
        assert await asyncio.to_thread(asked, target, "nonsense") == "NOT_FOUND"
        call.cancel()
        await draining
