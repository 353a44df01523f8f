"""Sends asks to a service and keeps what came of each, its scheduling receipt included."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import grpc

from bench.client import CONNECT_S, METHOD, Call, Sent
from bench.overload.asks import Ask
from bench.samples import Answer
from protos.walkway.v1 import inference_pb2 as pb

LEFT = "CANCELLED"
REFUSED = "refused"  # how the service's status message begins when a scheduler refused


@dataclass(frozen=True, slots=True)
class Reply:
    """One request as its client saw it; the last four are what the service said it did to
    it, None or 0 where it ended without a summary. Seconds."""

    kind: str
    answer: Answer
    timeout_s: float | None = None
    refused: bool = False
    queue_s: float | None = None
    preemptions: int = 0
    recomputed_tokens: int = 0
    paused_s: float = 0.0

    @property
    def done(self) -> bool:
        """It was answered in full."""
        return self.answer.status == "OK"

    @property
    def total_s(self) -> float:
        """From when it was due to its end."""
        return self.answer.total_s


class _Asked:
    """A call that goes on, or went."""

    def __init__(self, ask: Ask, raw: bytes) -> None:
        self.sent = Sent(ask.job, 0.0)
        self._ask = ask
        self._raw = raw
        self._details = ""

    async def go(self, call: Call, due_s: float) -> None:
        sent = self.sent
        sent.due_s, sent.sent_s = due_s, time.perf_counter()
        try:
            async with asyncio.timeout(self._ask.leaves_s):
                async for message in call(self._raw, timeout=self._ask.timeout_s):
                    sent.messages.append((time.perf_counter(), message))
        except TimeoutError:  # which cancels the call
            sent.status = LEFT
        except grpc.aio.AioRpcError as error:
            sent.status, self._details = error.code().name, error.details() or ""
        sent.ended_s = time.perf_counter()

    def reply(self, start_s: float) -> Reply:
        raw = self.sent.messages[-1][1] if self.sent.messages else b""
        summary = pb.GenerateStreamResponse.FromString(raw).summary
        told = summary.HasField("scheduling") and summary.scheduling.HasField("queue")
        scheduling = summary.scheduling
        return Reply(
            kind=self._ask.kind,
            answer=self.sent.answer(start_s),
            timeout_s=self._ask.timeout_s,
            refused=self._details.startswith(REFUSED),
            queue_s=scheduling.queue.ToNanoseconds() / 1e9 if told else None,
            preemptions=scheduling.preemptions,
            recomputed_tokens=scheduling.recomputed_tokens,
            paused_s=scheduling.paused.ToNanoseconds() / 1e9,
        )


async def when_due(target: str, asks: Sequence[Ask]) -> list[Reply]:
    """Open loop: each when it is due, whatever became of those before. `asks` in order of
    time. Raises TimeoutError when nobody answers."""
    calls = [_Asked(ask, ask.encoded()) for ask in asks]
    async with grpc.aio.insecure_channel(target) as channel:
        call = await _connect(channel)
        start_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for one in calls:
                due_s = start_s + one.sent.job.at_s
                await asyncio.sleep(due_s - time.perf_counter())
                group.create_task(one.go(call, due_s))
    return [one.reply(start_s) for one in calls]


async def at_most(target: str, asks: Sequence[Ask], clients: int) -> list[Reply]:
    """Closed loop: so many open at once, in order. Raises TimeoutError when nobody answers."""
    calls = [_Asked(ask, ask.encoded()) for ask in asks]
    async with grpc.aio.insecure_channel(target) as channel:
        call = await _connect(channel)
        start_s = time.perf_counter()
        left = iter(calls)
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(_one_after_another(call, left))
    return [one.reply(start_s) for one in calls]


async def _one_after_another(call: Call, left: Iterator[_Asked]) -> None:
    for one in left:
        await one.go(call, time.perf_counter())


async def _connect(channel: grpc.aio.Channel) -> Call:
    await asyncio.wait_for(channel.channel_ready(), CONNECT_S)
    return channel.unary_stream(METHOD, request_serializer=None, response_deserializer=None)
