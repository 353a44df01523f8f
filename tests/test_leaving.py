"""How a service ends: what callers see after SIGTERM, SIGINT and a second signal."""

import asyncio
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from protos.walkway.v1.inference_pb2_grpc import InferenceServiceStub
from service.health import LIVE, READY
from service.leaving import Leaving
from tests.test_app import Running, running
from tests.wire import ask

pytestmark = pytest.mark.alone
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
UP, OUT = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
LONG = ask(max_tokens=60_000)


def health(service: Running, name: str) -> int:
    stub = health_pb2_grpc.HealthStub(service.channel)
    return stub.Check(health_pb2.HealthCheckRequest(service=name)).status


def refusal(stub: InferenceServiceStub) -> grpc.RpcError:
    """What a new call ends with, once it is refused."""
    while True:
        try:
            stub.Generate(ask(max_tokens=1))
        except grpc.RpcError as error:
            return error
        time.sleep(0.02)


def retry_s(error: grpc.RpcError) -> float:
    trailers = dict(error.trailing_metadata())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    info = error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    return info.retry_delay.ToNanoseconds() / 1e9


def test_after_sigterm_health_turns_calls_are_served_then_refused_then_ended() -> None:
    with running("server.drain_delay_s=1", "server.grace_s=0.5") as service:
        stream = service.stub.GenerateStream(LONG)
        next(stream)
        service.process.send_signal(signal.SIGTERM)
        service.until("leaving")
        told_s = time.monotonic()
        assert (health(service, READY), health(service, ""), health(service, LIVE)) == (
            OUT,
            OUT,
            UP,
        )
        target = f"127.0.0.1:{service.started['port']}"
        with grpc.insecure_channel(target) as newcomer:
            for stub in (service.stub, InferenceServiceStub(newcomer)):
                assert stub.Generate(ask()).summary.usage.output_tokens == 8
            error = refusal(service.stub)
            assert 0.9 < time.monotonic() - told_s < 2.0
            assert error.code() is UNAVAILABLE
            assert "shutting down" in error.details()
            assert retry_s(error) > 0
            assert health(service, LIVE) == UP
        with pytest.raises(grpc.RpcError) as caught:
            list(stream)
        assert caught.value.code() is UNAVAILABLE
        assert service.ended()[0] == 0
        assert time.monotonic() - told_s < 4.0


HEALTH_CHECKED = json.dumps(
    {
        "loadBalancingConfig": [{"round_robin": {}}],
        "healthCheckConfig": {"serviceName": READY},
    }
)


@contextmanager
def callers(count: int, call: Callable[[], object]) -> Iterator[Counter[str]]:
    """Call again and again from so many threads; how it went, by status."""
    found: Counter[str] = Counter()
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            try:
                call()
                found["OK"] += 1
            except grpc.RpcError as error:
                found[error.code().name] += 1
            time.sleep(0.005)

    threads = [threading.Thread(target=go_on) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_client_that_watches_the_health_of_two_replicas_loses_no_call() -> None:
    with running("server.drain_delay_s=0.7") as leaves, running() as stays:
        for service in (leaves, stays):  # which log more than a pipe holds
            threading.Thread(target=service.process.stderr.read, daemon=True).start()
        target = "ipv4:" + ",".join(f"127.0.0.1:{s.started['port']}" for s in (leaves, stays))
        options = [("grpc.service_config", HEALTH_CHECKED)]
        with grpc.insecure_channel(target, options=options) as channel:
            stub = InferenceServiceStub(channel)
            request = ask(max_tokens=2)
            with callers(8, lambda: stub.Generate(request)) as found:
                time.sleep(0.3)
                leaves.process.send_signal(signal.SIGTERM)
                assert leaves.process.wait(10) == 0
                time.sleep(0.2)
        assert found.keys() == {"OK"}
        assert found["OK"] > 50


@pytest.mark.parametrize(
    ("first", "second", "event"),
    [(signal.SIGTERM, signal.SIGINT, "leaving"), (signal.SIGINT, signal.SIGTERM, "draining")],
    ids=["in the delay", "in the grace, to which SIGINT skips"],
)
def test_a_second_signal_ends_the_service_at_once(
    first: signal.Signals, second: signal.Signals, event: str
) -> None:
    with running("server.drain_delay_s=60", "server.grace_s=60") as service:
        stream = service.stub.GenerateStream(LONG)
        next(stream)
        service.process.send_signal(first)
        service.until(event)
        told_s = time.monotonic()
        service.process.send_signal(second)
        with pytest.raises(grpc.RpcError) as caught:
            list(stream)
        assert caught.value.code() is UNAVAILABLE
        assert "shut down" in caught.value.details()
        assert service.ended()[0] == 0
        assert time.monotonic() - told_s < 3.0


def test_a_second_signal_does_not_wait_for_an_engine_that_is_stopped() -> None:
    with running() as service:
        os.kill(service.engine_pid(), signal.SIGSTOP)
        service.process.send_signal(signal.SIGTERM)
        service.until("draining")
        time.sleep(0.3)
        told_s = time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        assert service.ended()[0] == 0
        assert time.monotonic() - told_s < 2.0


async def test_work_ends_with_itself_its_limit_or_the_end_at_once() -> None:
    leaving = Leaving()
    assert await leaving.within(5, asyncio.sleep(0))
    assert not await leaving.within(0.01, asyncio.sleep(60))
    leaving.ask(patiently=True)
    assert leaving.asked.is_set() and leaving.patiently and not leaving.at_once.is_set()
    asyncio.get_running_loop().call_later(0.01, leaving.ask)
    assert not await leaving.within(None, asyncio.sleep(60))
    assert leaving.at_once.is_set() and leaving.patiently
    with pytest.raises(ZeroDivisionError):
        await leaving.within(None, _raises())


async def _raises() -> None:
    raise ZeroDivisionError
