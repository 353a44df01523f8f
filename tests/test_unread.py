"""Answers that nobody reads: packed, handed out in pieces, bounded for all together."""

import asyncio
import tracemalloc
from typing import Any

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import service.streams
from models.batch import TokenLogprob
from models.toy import ToyTokenizer
from protos.walkway.v1 import inference_pb2 as pb
from protos.walkway.v1.inference_pb2_grpc import InferenceServiceStub
from service.call import SLICE_TOKENS, Call, Part
from service.deltas import Messages, deltas
from service.errors import NotRead, ServiceError
from service.messages import Finish, Receipt, RequestEvent, StepEvents, StepStats
from service.packing import count, pack, take, unpack
from service.requests import Answering
from service.streams import Stream, Streams
from service.text import TextStream
from service.unread import Unread
from service.writing import Delivery
from tests.cores import make_submit
from tests.wire import SMALL_WINDOW, ask, collect, serving, status_of, toy_build, unread

FLOATS = st.floats(width=32, allow_nan=False)
TOPS = st.lists(st.tuples(st.integers(0, 2**31 - 1), FLOATS), max_size=20).map(tuple)
ENTRIES = st.lists(st.builds(TokenLogprob, st.integers(0, 2**31 - 1), FLOATS, TOPS), max_size=9)
EVERYTHING = Answering(True, True, True, (), False, True, False)


def scored(token: int, alternatives: int = 20) -> TokenLogprob:
    return TokenLogprob(token, -0.5, tuple((n, -float(n)) for n in range(alternatives)))


@given(ENTRIES, st.integers(0, 9))
def test_packed_log_probabilities_are_those_that_were_packed(entries, first):
    packed = bytearray(pack(entries))
    assert count(packed) == len(entries)
    head = take(packed, first)
    assert [*unpack(head)] == entries[:first]
    assert [*unpack(packed)] == entries[first:]


def test_what_no_float_holds_is_the_least_that_one_does():
    (found,) = unpack(pack([TokenLogprob(1, -5e38, ((1, -5e38),))]))
    assert -3.41e38 < found.logprob == found.top[0][1] < -3.39e38


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8),
    st.integers(1, 7),
)
def test_news_come_in_pieces_that_joined_are_the_news(steps, most):
    waiting, tokens, prompt = Unread(), [], []
    for number, (of_prompt, of_output) in enumerate(steps):
        fresh = [scored(100 * number + n, n) for n in range(of_output)]
        old = [scored(100 * number + n, n) for n in range(of_prompt)]
        tokens += fresh
        prompt += old
        waiting.add(
            RequestEvent(
                1,
                admitted=number == 0,
                tokens=[entry.token for entry in fresh],
                logprobs=bytearray(pack(fresh)),
                prompt_logprobs=bytearray(pack(old)),
            )
        )
    waiting.add(RequestEvent(1, finish=Finish.STOP, receipt=Receipt(0.0, 0, 0, 0, 0)))
    pieces = []
    while waiting:
        pieces.append(waiting.take(most))
    assert [t for p in pieces for t in p.tokens] == [entry.token for entry in tokens]
    assert [e for p in pieces for e in unpack(p.logprobs)] == tokens
    assert [e for p in pieces for e in unpack(p.prompt_logprobs)] == prompt
    assert all(len(p.tokens) == count(p.logprobs) <= most for p in pieces)
    assert [p.finish for p in pieces] == [None] * (len(pieces) - 1) + [Finish.STOP]
    assert pieces[0].admitted
    assert waiting.bytes == 0


def test_a_long_answer_waits_in_little_memory():
    """As objects it takes ten times as much."""
    tracemalloc.start()
    try:
        waiting = Unread()
        for token in range(4000):
            news = RequestEvent(1, tokens=[token], logprobs=bytearray(pack([scored(token)])))
            waiting.add(news)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 2 * waiting.bytes < 2e6


def open_stream(streams: Streams, id: int, tokens: int) -> Stream:
    stream = streams.submit(make_submit(id), f"number {id}", lambda: None)
    deliver(streams, id, tokens)
    return stream


def deliver(streams: Streams, id: int, tokens: int) -> None:
    news = RequestEvent(id, tokens=[7] * tokens)
    streams.deliver(StepEvents(1, [news], StepStats()))


async def test_beyond_the_bound_those_that_do_not_read_end_the_largest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service.streams, "STALLED_S", 0.0)
    streams, ended = Streams(lambda command: None, 4000), []
    sizes = {1: 200, 2: 300, 3: 250, 4: 240}
    opened = {id: open_stream(streams, id, tokens) for id, tokens in sizes.items()}

    def give_up(id: int) -> Any:
        def end(error: ServiceError) -> None:
            assert isinstance(error, NotRead)
            ended.append(id)
            streams.cancel(opened[id], Finish.CANCELLED)

        return end

    for id in (1, 3, 4):  # number 2 has the most, and reads
        opened[id].sending(8, give_up(id))
    await asyncio.sleep(0.01)
    deliver(streams, 1, 1)
    assert not ended
    deliver(streams, 2, 10)
    assert ended == [3]
    opened[1].sent()
    deliver(streams, 2, 500)
    assert ended == [3, 4]
    deliver(streams, 2, 1000)  # nobody is left who does not read
    assert ended == [3, 4]
    for stream in opened.values():
        streams.cancel(stream, Finish.CANCELLED)
    assert streams.unread_bytes == 0


async def test_a_message_on_its_way_counts_and_is_given_time() -> None:
    streams, ended = Streams(lambda command: None, 4000), []
    stream = open_stream(streams, 1, 1)
    stream.sending(10_000, ended.append)
    assert streams.unread_bytes == 10_004
    deliver(streams, 1, 1)
    assert not ended
    stream.sent()
    assert streams.unread_bytes == 8


async def test_a_long_answer_is_worked_through_between_the_work_of_others() -> None:
    streams = Streams(lambda command: None, 2**20)
    submit = make_submit(1, max_tokens=4000)
    stream = streams.submit(submit, "one", lambda: None)
    call = Call(submit, EVERYTHING, stream, streams, TextStream(ToyTokenizer()), lambda: 1.0)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    stream.push(RequestEvent(1, tokens=[65] * 4000, finish=Finish.LENGTH))
    found = 0
    while (part := await call.next()) is not None:
        found += len(part.tokens)
        assert len(part.tokens) <= SLICE_TOKENS
    beside.cancel()
    assert found == 4000
    assert turns > 4000 / SLICE_TOKENS - 2


PARTS = st.builds(
    lambda text, tokens, prompt: Part(
        text, [e.token for e in tokens], pack(tokens), pack(prompt), []
    ),
    st.text(max_size=300),
    ENTRIES,
    ENTRIES,
)


@given(PARTS, st.integers(300, 1000))
def test_messages_are_cut_and_joined_are_what_was_cut(part, most):
    messages = [*deltas(part, EVERYTHING, most)]
    assert all(message.ByteSize() <= most for message in messages)
    (whole,) = deltas(part, EVERYTHING, 2**30)
    joined = pb.GenerateStreamResponse(text="".join(m.text for m in messages))
    for message in messages:
        message.ClearField("text")
        joined.MergeFrom(message)
    assert joined == whole


WHOLE_PROMPT = {"max_step_tokens": 4000}


async def test_a_caller_that_does_not_read_is_ended_for_those_that_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service.streams, "STALLED_S", 0.2)
    groups = {"server": {"max_unread_bytes": 2**20}, "engine": WHOLE_PROMPT}
    async with serving(toy_build(step_s=0.001), SMALL_WINDOW, **groups) as wire:
        calls = [await unread(wire) for _ in range(3)]  # of 0.7 MB each
        await wire.until(lambda: wire.gauge("requests_finished_total", finish="unread") == 2)
        output = pb.Output(logprobs=20, prompt_logprobs=20)
        request = ask("y" * 500, max_tokens=200, output=output)
        port = wire.service.listeners.port
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as another:
            reading = InferenceServiceStub(another).GenerateStream(request)
            messages = await collect(reading)
        assert sum(len(message.logprobs) for message in messages) == 200
        await wire.until(lambda: len(wire.service.streams) == 1)
        (left,) = wire.service.streams._open.values()
        first = [calls[left.id - 1]]
        for call in (call for call in calls if call not in first):
            error = await status_of(collect(call))
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert str(2**20) in (error.details() or "")
        first[0].cancel()
        await wire.settled()
        await wire.until(lambda: wire.service.streams.unread_bytes == 0)


async def test_a_reader_that_pauses_gets_messages_that_it_can_take() -> None:
    groups = {"server": {"max_stream_message_bytes": 40_000}, "engine": WHOLE_PROMPT}
    output = pb.Output(logprobs=20, prompt_logprobs=20, token_ids=True)
    request = ask("x" * 4000, max_tokens=200, output=output)
    async with serving(toy_build(step_s=0.0), SMALL_WINDOW, **groups) as wire:
        call = wire.stub.GenerateStream(request)
        await wire.settled()
        messages = await collect(call)
        assert 30_000 < max(message.ByteSize() for message in messages) <= 40_000
        whole = await wire.stub.Generate(request)
        for field in ("token_ids", "logprobs", "prompt_logprobs"):
            assert [x for m in messages for x in getattr(m, field)] == list(
                getattr(whole, field)
            )
        assert "".join(m.text for m in messages) == whole.text


async def test_a_stream_fits_the_smallest_messages_that_may_be_set() -> None:
    server = {"max_message_bytes": 4096}
    async with serving(toy_build(step_s=0.0), server=server) as wire:
        request = ask("x" * 1000, max_tokens=20, output=pb.Output(prompt_logprobs=20))
        messages = await collect(wire.stub.GenerateStream(request))
        assert sum(len(message.prompt_logprobs) for message in messages) == 999
        assert max(message.ByteSize() for message in messages) <= 4096
        assert wire.gauge("requests_finished_total", finish="length") == 1


async def test_what_merged_meanwhile_is_one_message_with_all_its_text() -> None:
    streams = Streams(lambda command: None, 2**20)
    submit = make_submit(1, max_tokens=1000)
    stream = streams.submit(submit, "one", lambda: None)
    call = Call(submit, EVERYTHING, stream, streams, TextStream(ToyTokenizer()), lambda: 1.0)
    tokens = [97 + n % 26 for n in range(1000)]
    for token in tokens:
        stream.push(RequestEvent(1, tokens=[token]))
    stream.push(RequestEvent(1, finish=Finish.LENGTH))
    messages = Messages(call, 2**20)
    first, last = await messages.next(), await messages.next()
    assert first is not None and last is not None
    assert list(first.token_ids) == tokens
    assert first.text == "".join(map(chr, tokens))
    assert last.HasField("summary")
    assert await messages.next() is None


async def test_a_message_does_not_wait_for_what_may_become_a_stop_string() -> None:
    streams = Streams(lambda command: None, 2**20)
    submit = make_submit(1, max_tokens=1000)
    stream = streams.submit(submit, "one", lambda: None)
    text = TextStream(ToyTokenizer(), ["xyz"])
    call = Call(submit, EVERYTHING, stream, streams, text, lambda: 1.0)
    messages = Messages(call, 2**20)
    stream.push(RequestEvent(1, tokens=[97] * SLICE_TOKENS + [120]))
    message = await asyncio.wait_for(messages.next(), 1)
    assert message is not None
    assert message.text == "a" * SLICE_TOKENS
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(messages.next(), 0.01)


async def test_a_message_that_is_read_as_its_call_is_given_up_is_followed_by_the_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sent = Delivery.sent

    async def given_up_just_before(delivery: Delivery) -> None:
        delivery._give_up(NotRead("too late"))
        await sent(delivery)

    monkeypatch.setattr(Delivery, "sent", given_up_just_before)
    async with serving() as wire:
        caplog.clear()
        error = await status_of(collect(wire.stub.GenerateStream(ask())))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.details() == "too late"
        await wire.until(lambda: not wire.service.streams)
    assert not caplog.records
