"""Who waits for a thread, and for how long: over a channel and of the lanes themselves."""

import asyncio
import threading
import time
from collections.abc import Callable

import grpc
import pytest

from models.toy import ToyTokenizer
from protos.walkway.v1 import inference_pb2 as pb
from service.engine_process import Build
from service.lanes import SECONDS_A_BYTE, SMALL, Lane, Lanes
from tests.wire import ask, bad_fields, retry_s, serving, status_of, toy_build

Code = grpc.StatusCode
LONG = "x" * (SMALL + 1)


class Held:
    """Work that lasts until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def __call__(self) -> None:
        assert self.go.wait(10)


async def test_what_waits_goes_by_arrival_and_size() -> None:
    lane, held, done = Lane("test"), Held(), list[str]()
    first = asyncio.create_task(lane.run(0, held))
    await asyncio.sleep(0)
    rest = [
        asyncio.create_task(lane.run(size, lambda name=name: done.append(name)))
        for name, size in (("large", 1_000_000), ("middle", 20_000), ("small", 100))
    ]
    await asyncio.sleep(0)
    held.go.set()
    await asyncio.gather(first, *rest)
    assert done == ["small", "middle", "large"]
    lane.close()


async def test_a_large_one_is_not_overtaken_for_ever() -> None:
    lane, held, done = Lane("test"), Held(), list[str]()
    first = asyncio.create_task(lane.run(0, held))
    large = asyncio.create_task(
        lane.run(int(0.05 / SECONDS_A_BYTE), lambda: done.append("large"))
    )
    await asyncio.sleep(0.1)
    late = asyncio.create_task(lane.run(100, lambda: done.append("late")))
    await asyncio.sleep(0)
    held.go.set()
    await asyncio.gather(first, large, late)
    assert done == ["large", "late"]
    lane.close()


async def test_what_is_given_up_while_it_waits_is_never_begun_and_blocks_nobody() -> None:
    lane, held, done = Lane("test"), Held(), list[str]()
    first = asyncio.create_task(lane.run(0, held))
    await asyncio.sleep(0)
    left = asyncio.create_task(lane.run(1, lambda: done.append("left")))
    next_ = asyncio.create_task(lane.run(20_000, lambda: done.append("next")))
    await asyncio.sleep(0)
    left.cancel()
    first.cancel()  # its thread goes on, and keeps the lane
    await asyncio.sleep(0.02)
    small = asyncio.create_task(lane.run(0, lambda: done.append("small")))
    await asyncio.sleep(0)
    assert done == []
    held.go.set()
    await asyncio.gather(next_, small)
    assert done == ["small", "next"]
    lane.close()


async def test_one_that_gets_its_turn_as_it_is_given_up_passes_it_on() -> None:
    lane, held = Lane("test"), Held()
    first = asyncio.create_task(lane.run(0, held))
    await asyncio.sleep(0)
    left = asyncio.create_task(lane.run(1, lambda: None))
    await asyncio.sleep(0)
    lane._next()  # what the first does when it is done
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    assert not lane.busy
    held.go.set()
    await first
    lane.close()


async def test_work_that_raises_does_so_to_its_caller_and_frees_the_thread() -> None:
    def fail() -> None:
        raise KeyError("x")

    lanes = Lanes("test")
    for size in (1, SMALL + 1):
        with pytest.raises(KeyError):
            await lanes.run(size, fail)
        assert await lanes.run(size, lambda: 1) == 1
    lanes.close()


class Watched(ToyTokenizer):
    """Does `before` with each text."""

    def __init__(self, before: Callable[[str], None]) -> None:
        self._before = before

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        self._before(text)
        return super().encode(text)


def sleep_for_long(text: str) -> None:
    if len(text) > SMALL:
        time.sleep(0.3)


def roomy() -> Build:
    """Takes a dozen long prompts at once."""
    return toy_build(pages=60_000)


async def test_a_short_prompt_does_not_wait_for_long_ones() -> None:
    async with serving(roomy(), tokenizer=Watched(sleep_for_long)) as wire:
        long = [wire.stub.Generate(ask(LONG, max_tokens=1)) for _ in range(6)]
        await wire.until(lambda: wire.service.admission.requests == 6)
        began_s = time.monotonic()
        await wire.stub.Generate(ask("hi", max_tokens=1))
        assert time.monotonic() - began_s < 0.9  # one after another they take twice as long
        await asyncio.gather(*long)


async def test_a_prompt_that_is_surely_too_long_is_never_tokenised() -> None:
    seen: list[str] = []
    async with serving(toy_build(context=100), tokenizer=Watched(seen.append)) as wire:
        chat = pb.Chat(messages=[pb.ChatMessage(role="user", content="x" * 101)])
        for call, field in (
            (wire.stub.Generate(ask("x" * 101)), "text"),
            (wire.stub.Tokenize(pb.TokenizeRequest(text="x" * 101)), "text"),
            (wire.stub.Generate(ask(chat=chat)), "chat"),
            (wire.stub.Tokenize(pb.TokenizeRequest(chat=chat)), "chat"),
        ):
            error = await status_of(call)
            assert error.code() is Code.INVALID_ARGUMENT
            assert "the context is 100" in bad_fields(error)[field]
        assert seen == []
        assert wire.service.admission.requests == 0


async def test_prompts_that_wait_are_bounded_in_bytes() -> None:
    limits = {"max_waiting_bytes": 2 * len(LONG) - 1}
    async with serving(roomy(), tokenizer=Watched(sleep_for_long), server=limits) as wire:
        first = wire.stub.Generate(ask(LONG, max_tokens=1))
        await wire.until(lambda: wire.service.admission.bytes == len(LONG))
        error = await status_of(wire.stub.Generate(ask(LONG, max_tokens=1)))
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert retry_s(error) > 0
        asked = await wire.stub.Tokenize(pb.TokenizeRequest(text=LONG))
        assert len(asked.token_ids) == len(LONG)
        await first
        assert wire.service.admission.bytes == 0


async def test_what_is_tokenised_for_its_own_sake_takes_no_place_of_a_request() -> None:
    limits = {"max_waiting_requests": 1}
    async with serving(roomy(), tokenizer=Watched(sleep_for_long), server=limits) as wire:
        query = pb.TokenizeRequest(text=LONG)
        queries = [wire.stub.Tokenize(query) for _ in range(3)]
        answers = asyncio.gather(*queries, return_exceptions=True)
        await asyncio.sleep(0.05)
        assert (await wire.stub.Generate(ask("hi"))).summary.usage.output_tokens == 8
        refused = [a for a in await answers if isinstance(a, grpc.aio.AioRpcError)]
        assert [r.code() for r in refused] == [Code.RESOURCE_EXHAUSTED] * 2
        assert all(retry_s(r) > 0 for r in refused)


async def test_a_call_that_leaves_while_its_prompt_waits_is_never_tokenised() -> None:
    seen: list[str] = []

    def note(text: str) -> None:
        seen.append(text)
        time.sleep(0.1)

    async with serving(roomy(), tokenizer=Watched(note)) as wire:
        running = [wire.stub.Generate(ask(LONG + str(i), max_tokens=1)) for i in range(3)]
        await wire.until(lambda: wire.service.admission.requests == 3 and len(seen) == 1)
        left = [wire.stub.Generate(ask(LONG + "left", max_tokens=1)) for _ in range(9)]
        await wire.until(lambda: wire.service.admission.requests > 9)
        for call in left:
            call.cancel()
        await asyncio.gather(*running)
        await wire.until(lambda: wire.service.admission.requests == 0)
        assert len(seen) == 3


async def test_an_answer_above_the_limit_says_so() -> None:
    async with serving(server={"max_message_bytes": 5000}) as wire:
        text = "\N{LATIN SMALL LETTER E WITH ACUTE}" * 2000  # two bytes in, four bytes out
        error = await status_of(wire.stub.Tokenize(pb.TokenizeRequest(text=text)))
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert "5000" in (error.details() or "")
        assert "answer" in (error.details() or "")
