"""What the scheduler did to a request, as its caller, the log and the metrics tell it."""

import asyncio
from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from models.toy import ToyTokenizer
from protos.walkway.v1 import inference_pb2 as pb
from service.call import Call, Part, Resumption
from service.messages import Finish, Pause, Receipt, RequestEvent
from service.receipts import scheduling_events
from service.replies import stream_message, summary
from service.requests import Answering
from service.streams import Streams
from service.text import TextStream
from tests.cores import make_submit
from tests.wire import ask, collect, serving, toy_build

TELLS = pb.Output(token_ids=True, scheduling_events=True)


def seconds(duration: object) -> float:
    return duration.ToNanoseconds() / 1e9


def pause(at_s: float, **other: object) -> Pause:
    return Pause(at_s, "recompute", "pages", 3, **other)


@pytest.fixture(autouse=True)
def _no_log_settings_left() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("scheduler", "mode"),
    [("fcfs", pb.EVICTION_MODE_RECOMPUTE), ("swap", pb.EVICTION_MODE_SWAP)],
)
async def test_a_stream_that_gives_way_says_so_and_loses_nothing(
    scheduler: str, mode: "pb.EvictionMode"
) -> None:
    requests = [ask(f"prompt {n}", max_tokens=60, output=TELLS) for n in range(3)]
    again = ask("prompt 0", max_tokens=1)
    async with serving() as wire:
        alone = [(await wire.stub.Generate(request)).text for request in requests]
    options = {"eviction": "swap"} if scheduler == "swap" else {}
    chosen = {"name": scheduler, "options": options}
    async with serving(toy_build(pages=24, host=64), scheduler=chosen) as wire:
        streams = await asyncio.gather(
            *(collect(wire.stub.GenerateStream(r)) for r in requests)
        )
        assert ["".join(m.text for m in messages) for messages in streams] == alone
        receipts = [messages[-1].summary.scheduling for messages in streams]
        assert sum(r.preemptions for r in receipts) > 0
        warm = [(await wire.stub.Generate(again)).summary.scheduling for _ in range(2)]
        assert warm[1].cached_tokens > 0
        for messages, receipt in zip(streams, receipts, strict=True):
            check(messages, receipt, mode)
        await wire.settled()
        told = sum(r.preemptions for r in receipts)
        name = "swap" if mode == pb.EVICTION_MODE_SWAP else "recompute"
        assert wire.gauge("preemptions_total", mode=name, cause="pages") == told
        assert wire.gauge("recomputed_tokens_total") == sum(
            r.recomputed_tokens for r in receipts
        )
        cached = sum(r.cached_tokens for r in [*receipts, *warm])
        assert wire.gauge("cached_tokens_total") == cached
        assert wire.gauge("refused_swaps_total") == 0
        assert wire.gauge("swapped_pages_total") == sum(r.swapped_pages for r in receipts)
        preempted = sum(r.preemptions > 0 for r in receipts)
        assert wire.gauge("pause_seconds_count") == preempted
        assert wire.gauge("requests", state="swapped") == 0
        assert wire.gauge("step_seconds_count", part="copy") > 0


def check(
    messages: list[pb.GenerateStreamResponse],
    receipt: pb.SchedulingReceipt,
    mode: "pb.EvictionMode",
) -> None:
    """Events take turns and agree with the receipt."""
    events = [event for message in messages for event in message.scheduling_events]
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds == ["preempted", "resumed"] * receipt.preemptions
    assert [e.preempted for e in events[::2]] == list(receipt.evictions)
    assert all(e.mode == mode for e in receipt.evictions)
    assert all(e.cause == pb.EVICTION_CAUSE_PAGES and e.pages > 0 for e in receipt.evictions)
    times = [seconds(e.preempted.at if e.preempted.pages else e.resumed.at) for e in events]
    assert times == sorted(times)
    gaps = sum(after - before for before, after in zip(times[::2], times[1::2], strict=True))
    assert seconds(receipt.paused) == pytest.approx(gaps, abs=1e-6)
    assert (receipt.recomputed_tokens > 0) == (
        receipt.preemptions > 0 and mode == pb.EVICTION_MODE_RECOMPUTE
    )
    assert receipt.steps > 0
    assert seconds(receipt.queue) > 0


async def test_events_come_only_when_wanted_and_the_receipt_always() -> None:
    requests = [ask(f"prompt {n}", max_tokens=60) for n in range(3)]
    async with serving(toy_build(pages=24)) as wire:
        *streams, whole = await asyncio.gather(
            *(collect(wire.stub.GenerateStream(request)) for request in requests[:2]),
            wire.stub.Generate(requests[2]),
        )
        messages = [message for stream in streams for message in stream]
        assert not any(message.scheduling_events for message in messages)
        receipts = [stream[-1].summary.scheduling for stream in streams]
        receipts.append(whole.summary.scheduling)
        assert sum(receipt.preemptions for receipt in receipts) > 0
        assert whole.summary.usage.preemptions == receipts[2].preemptions


async def test_the_log_tells_what_most_requests_do_not_meet() -> None:
    async with serving(toy_build(pages=24)) as wire:
        with capture_logs() as logs:
            requests = [ask(f"prompt {n}", max_tokens=60) for n in range(3)]
            answers = await asyncio.gather(*(wire.stub.Generate(r) for r in requests))
            await wire.stub.Generate(ask())
        ended = {line["request_id"]: line for line in logs if line["event"] == "request_ended"}
        for answer in answers:
            receipt, line = answer.summary.scheduling, ended[answer.summary.request_id]
            assert line.get("preemptions", 0) == receipt.preemptions
            assert line.get("recomputed_tokens", 0) == receipt.recomputed_tokens
            assert line.get("paused_s", 0) == pytest.approx(seconds(receipt.paused), abs=1e-4)
        assert "preemptions" in str(ended)
        undisturbed = [line for line in ended.values() if line["prompt_tokens"] == 5]
        assert "preemptions" not in undisturbed[0]


def taken_call(wants: bool) -> tuple[Call, Streams]:
    """A call whose stream is fed by hand."""
    streams = Streams(lambda command: None, 2**20)
    submit = make_submit(1)
    answering = Answering(True, False, False, (), False, True, wants)
    stream = streams.submit(submit, "one", lambda: None)
    text = TextStream(ToyTokenizer())
    return Call(submit, answering, stream, streams, text, lambda: 5.0), streams


async def test_merged_news_keep_the_order_of_events() -> None:
    call, streams = taken_call(wants=True)
    stream = call.stream
    stream.push(RequestEvent(1, paused=[pause(1.0)]))
    stream.push(RequestEvent(1, resumed_s=[2.0], tokens=[65]))
    stream.push(RequestEvent(1, paused=[pause(3.0)], tokens=[66]))
    part = await call.next()
    assert part is not None
    assert part.scheduling == [pause(1.0), Resumption(2.0), pause(3.0)]
    assert part.text == "AB"
    stream.push(RequestEvent(1, resumed_s=[4.0], paused=[pause(5.0)]))
    part = await call.next()
    assert part is not None
    assert part.scheduling == [Resumption(4.0), pause(5.0)]
    message = stream_message(part, call.answering)
    assert [e.WhichOneof("event") for e in message.scheduling_events] == [
        "resumed",
        "preempted",
    ]
    assert not message.text
    call.close()
    assert len(streams) == 0


async def test_events_nobody_wants_make_no_message() -> None:
    call, _ = taken_call(wants=False)
    call.stream.push(RequestEvent(1, paused=[pause(1.0)], resumed_s=[2.0]))
    call.stream.push(
        RequestEvent(1, finish=Finish.LENGTH, receipt=Receipt(0.5, 0, 1, 1, 2, share_tokens=3))
    )
    assert await call.next() is None
    assert summary(call).scheduling.preemptions == 1
    assert summary(call).scheduling.share_tokens == 3


def test_a_part_of_events_alone_is_worth_a_message() -> None:
    assert Part(scheduling=[Resumption(1.0)])
    assert not Part()


def test_estimates_that_are_absent_or_endless_stay_absent() -> None:
    (without,) = scheduling_events([pause(1.0)])
    (endless,) = scheduling_events([pause(1.0, swap_s=float("inf"), recompute_s=0.25)])
    assert not without.preempted.HasField("swap_estimate")
    assert not endless.preempted.HasField("swap_estimate")
    assert seconds(endless.preempted.recompute_estimate) == 0.25


async def test_a_call_whose_engine_died_has_no_receipt() -> None:
    call, _ = taken_call(wants=True)
    assert not summary(call).HasField("scheduling")
