"""When to come again: an estimate from the queue and its pace, said in every dialect."""

import json
import time

import grpc
import grpc.aio
import pytest

from service.admission import Admission
from service.errors import JITTER, Overloaded
from service.gate import LEAST_RETRY_S
from service.pace import LEAST_S, MOST_S, UNKNOWN_S, Pace
from tests.wire import ask, first_message, retry_s, serving, status_of, toy_build

Code = grpc.StatusCode


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_time_of_some_places_is_how_fast_they_were_left_lately() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.time_of(10) == UNKNOWN_S
    for _ in range(1000):
        clock.now_s += 0.2
        pace.count()
    assert pace.time_of(10) == pytest.approx(2.0)
    clock.now_s += 255 * 0.2  # nothing moved for as long as it took before
    assert pace.time_of(10) == pytest.approx(4.0)
    clock.now_s += 1e6
    assert pace.time_of(10) == MOST_S
    pace.begin()
    assert pace.time_of(10) == UNKNOWN_S
    for _ in range(10):
        clock.now_s += 1e-4
        pace.count()
    assert pace.time_of(10) == LEAST_S


def test_a_full_queue_says_when_half_of_it_is_gone_and_not_the_same_to_all() -> None:
    clock = Clock()
    admission = Admission(100, 1_000_000, 1_000_000, clock)
    places = [admission.enter(1) for _ in range(100)]
    for _ in range(20):
        clock.now_s += 0.5
        places.pop().leave()
        places.append(admission.enter(1))
    waits_s = set()
    for _ in range(50):
        with pytest.raises(Overloaded) as caught:
            admission.enter(1)
        waits_s.add(caught.value.retry_after_s)
    assert len(waits_s) > 40
    assert 25 <= min(waits_s) < max(waits_s) <= 25 * (1 + JITTER)


async def test_when_to_come_again_is_the_same_in_every_dialect() -> None:
    limits = {"max_waiting_requests": 1}
    slow = toy_build(before=lambda batch: time.sleep(0.05))
    async with serving(slow, server=limits, engine={"max_rows": 1}) as wire:
        running = wire.stub.GenerateStream(ask(max_tokens=1000))
        await first_message(running)
        waiting = wire.stub.GenerateStream(ask())
        await wire.until(lambda: wire.service.admission.requests == 1)
        error = await status_of(wire.stub.Generate(ask()))
        after_s = retry_s(error)
        said = dict(error.trailing_metadata() or ())
        assert int(said["grpc-retry-pushback-ms"]) == pytest.approx(1e3 * after_s, abs=2)
        assert after_s <= int(said["retry-after"]) < after_s + 1
        running.cancel()
        waiting.cancel()


POLICY = {
    "methodConfig": [
        {
            "name": [{"service": "walkway.v1.InferenceService"}],
            "retryPolicy": {
                "maxAttempts": 3,
                "initialBackoff": "0.01s",
                "maxBackoff": "0.01s",
                "backoffMultiplier": 1,
                "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
            },
        }
    ]
}


async def test_a_client_with_grpcs_own_retries_comes_again_when_it_was_told() -> None:
    options = [("grpc.service_config", json.dumps(POLICY))]
    limits = {"max_concurrent_calls": 1}
    async with serving(options=options, server=limits) as wire:  # type: ignore[arg-type]
        running = wire.stub.GenerateStream(ask(max_tokens=4000))
        await first_message(running)
        began_s = time.monotonic()
        error = await status_of(wire.stub.Generate(ask()))
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert wire.gauge("requests_refused_total", code="RESOURCE_EXHAUSTED") == 3
        assert time.monotonic() - began_s >= 2 * LEAST_RETRY_S
        running.cancel()
