"""Queues, limits and clients that leave, over a real channel."""

import asyncio
import random
import re
import time
from collections.abc import Sequence

import grpc
import pytest

from models.batch import StepBatch
from models.toy import ToyTokenizer
from protos.walkway.v1 import inference_pb2 as pb
from service.messages import RequestEvent
from service.streams import Streams
from tests.cores import make_submit
from tests.wire import (
    ask,
    collect,
    first_message,
    retry_s,
    serving,
    status_of,
    toy_build,
)

pytestmark = pytest.mark.alone
Code = grpc.StatusCode


async def test_every_call_above_the_queue_is_answered_with_a_time_to_retry() -> None:
    async with serving(
        toy_build(step_s=0.005),
        server={"max_waiting_requests": 3},
        engine={"max_rows": 1},
    ) as wire:
        calls = [wire.stub.Generate(ask(max_tokens=25)) for _ in range(30)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refused = [a for a in answers if isinstance(a, grpc.aio.AioRpcError)]
        assert 3 <= len(answers) - len(refused) <= 6
        assert {r.code() for r in refused} == {Code.RESOURCE_EXHAUSTED}
        assert all(retry_s(r) > 0 for r in refused)
        assert wire.gauge("requests_refused_total", code="RESOURCE_EXHAUSTED") == len(refused)
        assert (wire.service.admission.requests, wire.service.admission.tokens) == (0, 0)


async def test_prompts_that_wait_are_bounded_in_tokens() -> None:
    async with serving(
        toy_build(step_s=0.01), server={"max_waiting_tokens": 50}, engine={"max_rows": 1}
    ) as wire:
        running = wire.stub.GenerateStream(ask(max_tokens=1000))
        await first_message(running)
        waiting = asyncio.create_task(collect(wire.stub.GenerateStream(ask("x" * 40))))
        await wire.until(lambda: wire.service.admission.tokens == 40)
        error = await status_of(wire.stub.Generate(ask("x" * 11)))
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert "50" in (error.details() or "")
        running.cancel()
        await waiting
        await wire.settled()


async def test_a_call_that_waits_too_long_is_refused() -> None:
    async with serving(
        toy_build(step_s=0.01), server={"queue_timeout_s": 0.1}, engine={"max_rows": 1}
    ) as wire:
        running = wire.stub.GenerateStream(ask(max_tokens=1000))
        await first_message(running)
        error = await status_of(wire.stub.Generate(ask()))
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert retry_s(error) > 0
        running.cancel()
        await wire.settled()


async def test_a_request_id_is_taken_while_its_stream_is_open_and_free_afterwards() -> None:
    async with serving() as wire:
        open_ = wire.stub.GenerateStream(ask(max_tokens=3000, request_id="mine"))
        await first_message(open_)
        error = await status_of(wire.stub.Generate(ask(request_id="mine")))
        assert error.code() is Code.ALREADY_EXISTS
        open_.cancel()
        await wire.settled()
        assert (await wire.stub.Generate(ask(request_id="mine"))).summary.request_id == "mine"


async def test_a_client_that_leaves_ends_its_request_within_a_step() -> None:
    steps: list[StepBatch] = []
    async with serving(toy_build(step_s=0.1, before=steps.append)) as wire:
        call = wire.stub.GenerateStream(ask(max_tokens=4000))
        await first_message(call)
        call.cancel()
        begun = len(steps)
        await wire.settled()
        assert len(steps) <= begun + 1
        assert wire.gauge("requests_finished_total", finish="cancelled") == 1


async def test_clients_that_leave_at_any_moment_leave_nothing_behind() -> None:
    rng = random.Random(1)
    async with serving(toy_build(step_s=0.001), engine={"max_rows": 4}) as wire:

        async def leave() -> None:
            call = wire.stub.GenerateStream(ask(max_tokens=500))
            await asyncio.sleep(rng.random() * 0.2)
            call.cancel()

        await asyncio.gather(*(leave() for _ in range(60)))
        await wire.settled()
        await wire.until(lambda: len(wire.service.streams) == 0)
        assert (wire.service.admission.requests, wire.service.admission.tokens) == (0, 0)
        assert (await wire.stub.Generate(ask())).summary.usage.output_tokens == 8


async def test_the_callers_deadline_ends_the_work() -> None:
    async with serving(toy_build(step_s=0.005)) as wire:
        error = await status_of(wire.stub.Generate(ask(max_tokens=4000), timeout=0.1))
        assert error.code() is Code.DEADLINE_EXCEEDED
        await wire.settled()


async def test_a_deadline_that_cannot_be_met_is_refused_at_once_with_the_estimate() -> None:
    chosen = {"name": "deadline"}
    async with serving(toy_build(step_s=0.02), scheduler=chosen) as wire:
        running = wire.stub.GenerateStream(ask(max_tokens=4000))
        await wire.until(lambda: wire.gauge("output_tokens_total") > 20)
        long = ask(max_tokens=400, stopping=pb.Stopping(min_tokens=400))
        messages: list[pb.GenerateStreamResponse] = []
        asked_s = time.monotonic()
        error = await status_of(collect(wire.stub.GenerateStream(long, timeout=4), messages))
        assert time.monotonic() - asked_s < 2
        assert error.code() is Code.DEADLINE_EXCEEDED
        found = re.search(r"would have needed (\d+\.\d+) s", error.details() or "")
        assert found
        assert float(found[1]) > 4
        assert messages == []
        running.cancel()
        await wire.settled()


async def test_a_deadline_that_passes_while_a_prompt_is_tokenised_is_one() -> None:
    async with serving(tokenizer=Slow()) as wire:
        error = await status_of(wire.stub.Generate(ask("slow"), timeout=0.2))
        assert error.code() is Code.DEADLINE_EXCEEDED
        await wire.until(
            lambda: wire.gauge("requests_refused_total", code="DEADLINE_EXCEEDED") == 1
        )
        left = wire.stub.Generate(ask("slow"))
        await wire.until(lambda: wire.service.admission.requests == 1)
        left.cancel()
        await wire.until(lambda: wire.gauge("requests_refused_total", code="CANCELLED") == 1)


async def test_the_servers_time_limit_ends_a_stream_with_what_it_cost() -> None:
    async with serving(toy_build(step_s=0.005), server={"request_timeout_s": 0.2}) as wire:
        request = ask(max_tokens=4000, output=pb.Output(token_ids=True))
        call = wire.stub.GenerateStream(request)
        messages: list[pb.GenerateStreamResponse] = []
        error = await status_of(collect(call, messages))
        assert error.code() is Code.DEADLINE_EXCEEDED
        assert "0.200 s" in (error.details() or "")
        summary = messages[-1].summary
        assert summary.finish_reason == pb.FINISH_REASON_TIMEOUT
        assert 0 < summary.usage.output_tokens == sum(len(m.token_ids) for m in messages)
        await wire.settled()


async def test_the_callers_own_time_makes_what_there_is_the_answer() -> None:
    async with serving(toy_build(step_s=0.005)) as wire:
        stopping = pb.Stopping()
        stopping.max_time.FromMilliseconds(100)
        answer = await wire.stub.Generate(ask(max_tokens=4000, stopping=stopping))
        assert answer.summary.finish_reason == pb.FINISH_REASON_DEADLINE
        assert 0 < len(answer.text) <= answer.summary.usage.output_tokens < 40


async def test_limits_that_are_due_at_the_same_moment_hurt_nobody() -> None:
    limits = {"request_timeout_s": 0.2, "queue_timeout_s": 0.2}
    async with serving(toy_build(step_s=0.005), server=limits) as wire:
        stopping = pb.Stopping()
        stopping.max_time.FromMilliseconds(200)
        answer = await wire.stub.Generate(ask(max_tokens=4000, stopping=stopping))
        assert answer.summary.finish_reason == pb.FINISH_REASON_DEADLINE
        error = await status_of(wire.stub.Generate(ask(max_tokens=4000)))
        assert error.code() is Code.DEADLINE_EXCEEDED
        assert (await wire.stub.Generate(ask())).summary.usage.output_tokens == 8


async def test_what_never_reached_a_step_has_no_queue_time() -> None:
    async with serving(toy_build(step_s=0.005), engine={"max_rows": 1}) as wire:
        running = wire.stub.GenerateStream(ask(max_tokens=4000))
        await first_message(running)
        stopping = pb.Stopping()
        stopping.max_time.FromMilliseconds(50)
        summary = (await wire.stub.Generate(ask(stopping=stopping))).summary
        assert summary.finish_reason == pb.FINISH_REASON_DEADLINE
        assert not summary.timings.HasField("queue")
        assert not summary.timings.HasField("first_token")
        assert summary.timings.HasField("total")
        assert wire.gauge("queue_seconds_count") == 0
        running.cancel()
        await wire.settled()


class Slow(ToyTokenizer):
    """Takes its time over what starts with "slow"."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        if text.startswith("slow"):
            time.sleep(0.5)
        return super().encode(text)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        if list(ids) == list(b"slow"):
            time.sleep(0.5)
        return super().decode(ids, skip_special_tokens)


async def test_texts_that_wait_to_be_decoded_are_bounded() -> None:
    async with serving(tokenizer=Slow(), server={"max_waiting_requests": 1}) as wire:
        request = pb.DetokenizeRequest(token_ids=b"slow")
        calls = [wire.stub.Detokenize(request) for _ in range(3)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refused = [a for a in answers if isinstance(a, grpc.aio.AioRpcError)]
        assert [r.code() for r in refused] == [Code.RESOURCE_EXHAUSTED] * 2
        assert wire.service.admission.requests == 0


async def test_tokenising_a_long_prompt_holds_up_nobody() -> None:
    async with serving(tokenizer=Slow()) as wire:
        slow = asyncio.create_task(collect(wire.stub.GenerateStream(ask("slow"))))
        start_s = time.monotonic()
        await wire.stub.Generate(ask())
        assert time.monotonic() - start_s < 0.3
        assert len(await slow) > 1


async def test_a_reader_that_lags_gets_fewer_and_larger_messages() -> None:
    sent: list[object] = []
    streams = Streams(sent.append, 2**20)
    submit = make_submit(1)
    stream = streams.submit(submit, "one", lambda: None)
    for token in range(5):
        stream.push(RequestEvent(1, tokens=[token]))
    assert (await stream.take(3)).tokens == [0, 1, 2]
    assert (await stream.take(3)).tokens == [3, 4]
    assert sent == [submit]
