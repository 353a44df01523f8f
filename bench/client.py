"""A gRPC client that asks much of a service and little of the machine it shares with it.

Requests are serialised before the run and messages are decoded after it; meanwhile a
message costs one timestamp.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import grpc

from bench.samples import Answer
from bench.workload import Job
from protos.walkway.v1 import inference_pb2 as pb

METHOD = "/walkway.v1.InferenceService/GenerateStream"
CONNECT_S = 10.0

Call = grpc.aio.UnaryStreamMultiCallable[bytes, bytes]


@dataclass(slots=True)
class Sent:
    """One call, as it goes on. Seconds of the performance counter."""

    job: Job
    due_s: float
    sent_s: float = 0.0
    ended_s: float = 0.0
    status: str = "OK"
    messages: list[tuple[float, bytes]] = field(default_factory=list)

    def answer(self, start_s: float) -> Answer:
        """Decode what came, with times from `start_s`."""
        counted = (
            (at_s - start_s, len(pb.GenerateStreamResponse.FromString(raw).token_ids))
            for at_s, raw in self.messages
        )
        return Answer(
            due_s=self.due_s - start_s,
            sent_s=self.sent_s - start_s,
            ended_s=self.ended_s - start_s,
            prompt_tokens=len(self.job.prompt),
            arrivals=tuple((at_s, tokens) for at_s, tokens in counted if tokens),
            status=self.status,
        )


def request(job: Job) -> bytes:
    """Greedy, exactly `max_tokens` tokens, as text and ids."""
    return pb.GenerateRequest(
        token_ids=pb.TokenIds(ids=job.prompt),
        sampling=pb.Sampling(temperature=0.0),
        stopping=pb.Stopping(max_tokens=job.max_tokens, ignore_eos=True),
        output=pb.Output(text=True, token_ids=True),
    ).SerializeToString()


async def closed_loop(target: str, jobs: Sequence[Job], clients: int) -> list[Answer]:
    """So many clients, each with one call open until there are no more jobs."""
    queue = iter([(job, request(job)) for job in jobs])
    sent: list[Sent] = []
    async with grpc.aio.insecure_channel(target) as channel:
        call = await _connect(channel)
        start_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(_client(call, queue, sent))
    return [one.answer(start_s) for one in sent]


async def open_loop(target: str, jobs: Sequence[Job]) -> list[Answer]:
    """Each job when it is due, however many are open by then."""
    ready = [(job, request(job)) for job in jobs]
    sent: list[Sent] = []
    async with grpc.aio.insecure_channel(target) as channel:
        call = await _connect(channel)
        start_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for job, raw in ready:
                due_s = start_s + job.at_s
                await asyncio.sleep(due_s - time.perf_counter())
                sent.append(Sent(job, due_s))
                group.create_task(_ask(call, raw, sent[-1]))
    return [one.answer(start_s) for one in sent]


async def _connect(channel: grpc.aio.Channel) -> Call:
    """Raises TimeoutError when nobody answers."""
    await asyncio.wait_for(channel.channel_ready(), CONNECT_S)
    return channel.unary_stream(METHOD, request_serializer=None, response_deserializer=None)


async def _client(call: Call, queue: Iterator[tuple[Job, bytes]], sent: list[Sent]) -> None:
    for job, raw in queue:
        sent.append(Sent(job, time.perf_counter()))
        await _ask(call, raw, sent[-1])


async def _ask(call: Call, raw: bytes, sent: Sent) -> None:
    sent.sent_s = time.perf_counter()
    try:
        async for message in call(raw):
            sent.messages.append((time.perf_counter(), message))
    except grpc.aio.AioRpcError as error:
        sent.status = error.code().name
    sent.ended_s = time.perf_counter()
