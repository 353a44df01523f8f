"""Time limits hold while the engine is stopped: the front end's own clock ends what is due."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2

from models.toy import ToyTokenizer
from protos.walkway.v1 import inference_pb2 as pb
from service.messages import Finish, Limits, StepEvents
from service.time_limits import GRACE_S, TimeLimits
from tests.engine_builds import touchy
from tests.test_supervisor import engine_pid
from tests.wire import (
    Wire,
    ask,
    collect,
    first_message,
    health_of,
    retry_s,
    serving,
    status_of,
)

pytestmark = pytest.mark.alone
Code = grpc.StatusCode
Status = health_pb2.HealthCheckResponse
LIMIT_S = 0.5
SLACK_S = 1.0
"""For a machine that is busy."""


@asynccontextmanager
async def with_a_process(stall_timeout_s: float = 30.0, **server: float) -> AsyncIterator[Wire]:
    engine = {
        "isolation": "process",
        "stall_timeout_s": stall_timeout_s,
        "restart_backoff_s": 0.05,
    }
    async with serving(touchy, engine=engine, server=server) as wire:
        yield wire
        os.kill(engine_pid(), signal.SIGCONT)  # it is asked to stop


def stop_engine() -> float:
    os.kill(engine_pid(), signal.SIGSTOP)
    return time.monotonic()


def in_time(began_s: float) -> bool:
    return LIMIT_S <= time.monotonic() - began_s < LIMIT_S + GRACE_S + SLACK_S


def long(**stopping: Duration) -> pb.GenerateRequest:
    output = pb.Output(token_ids=True)
    return ask(max_tokens=10_000, stopping=pb.Stopping(**stopping), output=output)


HALF = Duration(nanos=int(LIMIT_S * 1e9))


async def test_max_time_is_an_answer_in_time_while_the_engine_is_stopped() -> None:
    async with with_a_process() as wire:
        began_s = time.monotonic()
        stream = wire.stub.GenerateStream(long(max_time=HALF))
        tokens = list((await first_message(stream)).token_ids)
        stop_engine()
        whole = asyncio.create_task(collect(wire.stub.GenerateStream(long(max_time=HALF))))
        messages = await collect(stream)
        assert in_time(began_s)
        end = messages[-1].summary
        tokens += [token for message in messages for token in message.token_ids]
        assert end.finish_reason == pb.FINISH_REASON_DEADLINE
        assert end.usage.output_tokens == len(tokens) > 0
        [only] = await whole
        assert only.summary.finish_reason == pb.FINISH_REASON_DEADLINE
        assert only.summary.usage.output_tokens == 0
        os.kill(engine_pid(), signal.SIGCONT)
        await wire.settled()
        assert (await wire.stub.Generate(ask())).summary.usage.output_tokens == 8


async def test_an_engine_in_time_says_itself_how_a_request_ended() -> None:
    async with serving() as wire:
        answer = await wire.stub.Generate(long(max_time=HALF))
        assert answer.summary.finish_reason == pb.FINISH_REASON_DEADLINE
        assert answer.summary.scheduling.steps > 0, "the receipt is there"


async def test_the_request_time_out_is_an_error_in_time_while_the_engine_is_stopped() -> None:
    async with with_a_process(request_timeout_s=LIMIT_S) as wire:
        began_s = time.monotonic()
        stream = wire.stub.GenerateStream(long())
        await first_message(stream)
        stop_engine()
        messages: list[pb.GenerateStreamResponse] = []
        error = await status_of(collect(stream, messages))
        assert in_time(began_s)
        assert error.code() is Code.DEADLINE_EXCEEDED
        assert f"{LIMIT_S:.3f} s, the limit" in (error.details() or "")
        assert messages[-1].summary.finish_reason == pb.FINISH_REASON_TIMEOUT
        assert wire.gauge("requests_finished_total", finish="expired") == 1


async def test_the_queue_time_out_is_a_refusal_in_time_while_the_engine_is_stopped() -> None:
    async with with_a_process(queue_timeout_s=LIMIT_S) as wire:
        running = wire.stub.GenerateStream(long())
        await first_message(running)
        began_s = stop_engine()
        error = await status_of(wire.stub.Generate(ask()))
        assert in_time(began_s)
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert retry_s(error) > 0
        assert not running.done(), "it waits no longer"
        assert wire.service.admission.requests == 0


async def test_a_calls_deadline_leaves_nothing_behind_while_the_engine_is_stopped() -> None:
    async with with_a_process() as wire:
        stop_engine()
        began_s = time.monotonic()
        error = await status_of(wire.stub.Generate(ask(), timeout=LIMIT_S))
        assert error.code() is Code.DEADLINE_EXCEEDED
        await wire.until(lambda: len(wire.service.streams) == 0)
        assert in_time(began_s)
        await wire.until(lambda: wire.gauge("requests_finished_total", finish="expired") == 1)


async def test_a_stop_string_s_answer_waits_for_a_receipt_no_longer_than_its_time() -> None:
    async with with_a_process() as wire:
        text = (await wire.stub.Generate(ask())).text
        stopping = pb.Stopping(max_time=HALF, stop_strings=[text[:1]])
        deliver = wire.service.streams.deliver

        def stop_and_deliver(events: StepEvents) -> None:
            stop_engine()
            deliver(events)

        wire.service.streams.deliver = stop_and_deliver
        began_s = time.monotonic()
        answer = await wire.stub.Generate(ask(max_tokens=10_000, stopping=stopping))
        assert in_time(began_s)
        assert answer.summary.finish_reason == pb.FINISH_REASON_STOP
        wire.service.streams.deliver = deliver


class Slow(ToyTokenizer):
    """Takes far longer than the limit for a text."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        time.sleep(LIMIT_S + GRACE_S + SLACK_S)
        return super().encode(text, add_special_tokens)


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("request_timeout_s", Code.DEADLINE_EXCEEDED),
        ("queue_timeout_s", Code.RESOURCE_EXHAUSTED),
    ],
)
async def test_limits_hold_while_a_prompt_is_tokenised(limit: str, code: Code) -> None:
    async with serving(tokenizer=Slow(), server={limit: LIMIT_S}) as wire:
        began_s = time.monotonic()
        error = await status_of(wire.stub.Generate(ask()))
        assert in_time(began_s)
        assert error.code() is code
        assert f"{LIMIT_S:.3f} s, the limit" in (error.details() or "")
        assert wire.service.admission.requests == 0


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_health_turns_when_the_engine_is_stopped_and_back_with_the_next(
    busy: bool,
) -> None:
    async with with_a_process(stall_timeout_s=1.0) as wire:
        call = wire.stub.GenerateStream(long())
        if busy:
            await first_message(call)
        else:
            call.cancel()
            await wire.until(lambda: len(wire.service.streams) == 0)
        stopped_s = stop_engine()
        while await health_of(wire) == Status.SERVING:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert 0.7 < time.monotonic() - stopped_s < 2.0
        if busy:
            error = await status_of(collect(call))
            assert error.code() is Code.UNAVAILABLE
            assert retry_s(error) > 0
        await wire.until(lambda: wire.gauge("engine_up") == 1)
        assert await health_of(wire) == Status.SERVING
        assert (await wire.stub.Generate(ask())).summary.usage.output_tokens == 8


async def test_limits_are_told_in_their_order_a_grace_after_they_passed() -> None:
    told: list[tuple[int, Finish]] = []
    live = {1, 2, 3}
    limits = TimeLimits(live, lambda id, reason: told.append((id, reason)), grace_s=0.05)
    now_s = asyncio.get_running_loop().time()
    limits.watch(1, Limits(1, end_by_s=now_s + 0.1, expire_by_s=now_s + 0.1))
    limits.watch(2, Limits(1, admit_by_s=now_s + 0.02, expire_by_s=float("inf")))
    limits.watch(3, Limits(1))
    await asyncio.sleep(0.05)
    assert told == []
    await asyncio.sleep(0.2)
    assert told == [
        (2, Finish.QUEUE_TIMEOUT),
        (1, Finish.MAX_TIME),
        (1, Finish.EXPIRED),
    ]
    await asyncio.sleep(0)
    limits.watch(1, Limits(1, end_by_s=now_s))
    await asyncio.sleep(0.05)
    assert told[3:] == [(1, Finish.MAX_TIME)], "one that has passed already"
