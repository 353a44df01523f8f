import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from models.batch import Sampling, TokenLogprob
from service.channel import WINDOW, EngineSocket, FrontSocket
from service.messages import (
    End,
    Event,
    Failed,
    Finish,
    Inspect,
    Inspected,
    Pause,
    Receipt,
    RequestEvent,
    RequestState,
    SchedulerSet,
    SchedulerState,
    SetScheduler,
    StepEvents,
    StepStats,
    Stop,
)
from service.outbox import COUNTERS, TALLIES, Outbox
from service.packing import pack
from tests.cores import make_submit
from tests.engine_builds import READY

GAUGES = {
    "scheduler",
    "running",
    "waiting",
    "swapped",
    "free_pages",
    "cached_pages",
    "held_pages",
    "used_slots",
    "host_free_pages",
}
PAUSE = Pause(1.5, "swap", "pages", 3, 0.25, None)
RECEIPT = Receipt(0.5, 1, 2, 3, 4, 6, 0.75, (PAUSE,), 7)


@dataclass
class Pair:
    """Both ends of one channel, and what the front end heard."""

    engine: EngineSocket
    front: FrontSocket
    heard: list[Event] = field(default_factory=list)

    def steps(self) -> list[StepEvents]:
        return [event for event in self.heard if isinstance(event, StepEvents)]

    def steps_heard(self) -> int:
        return sum(message.stats.steps for message in self.steps())

    async def until(self, there: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not there():  # noqa: ASYNC110
                await asyncio.sleep(0.001)


@pytest.fixture
async def pair(tmp_path: Path) -> Iterator[Pair]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    address = f"ipc://{tmp_path}/s"
    heard: list[Event] = []
    front = FrontSocket(context, address, heard.append)
    made = Pair(EngineSocket(address, generation=7), front, heard)
    yield made
    front.close()
    made.engine._context.destroy(linger=0)
    context.term()


def token(id: int, *tokens: int, **other: object) -> RequestEvent:
    return RequestEvent(id, tokens=list(tokens), **other)


def step(running: int = 1) -> StepStats:
    return StepStats(running=running, steps=1, output_tokens=1)


async def test_a_submit_arrives_as_it_was_sent(pair: Pair) -> None:
    sampling = Sampling(temperature=0.5, logit_bias=((3, -1.5),), stop_ids=(1, 2), logprobs=2)
    sent = make_submit(3, sampling=sampling, tenant="ü", deadline_s=1.25, namespace="salt")
    pair.engine.announce(READY)
    await pair.until(lambda: bool(pair.heard))
    pair.front.send(sent)
    pair.front.send(End(3, Finish.CANCELLED))
    pair.front.send(Stop())
    got = [command for _ in range(3) for command in pair.engine.receive(0.05)]
    assert got == [sent, End(3, Finish.CANCELLED), Stop()]


async def test_an_event_arrives_as_it_was_sent(pair: Pair) -> None:
    logprob = TokenLogprob(5, -0.25, ((5, -0.25), (6, -2.0)))
    scored = bytearray(pack([logprob]))
    event = token(1, 5, admitted=True, logprobs=scored, finish=Finish.STOP, receipt=RECEIPT)
    copy = msgspec.structs.replace(event)
    pair.engine.send([event], step())
    await pair.until(lambda: bool(pair.heard))
    assert pair.heard == [StepEvents(7, [copy], step())]


async def test_nobody_to_send_to_is_a_connection_error(tmp_path: Path) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    front = FrontSocket(context, f"ipc://{tmp_path}/nobody", lambda event: None)
    with pytest.raises(ConnectionError):
        front.send(Stop())
    front.close()
    with pytest.raises(ConnectionError):
        front.send(Stop())
    context.term()


async def test_what_nobody_reads_merges_and_nothing_is_lost(pair: Pair) -> None:
    steps = 500
    for n in range(steps):
        done = n == steps - 1
        finish = {"finish": Finish.LENGTH, "receipt": RECEIPT} if done else {}
        pair.engine.send([token(1, n), token(2, -n, **finish)], step(running=n))
    await pair.until(lambda: len(pair.heard) == WINDOW)
    await asyncio.sleep(0.02)
    assert len(pair.heard) == WINDOW, "only what there was credit for is on its way"
    pair.engine.receive(1.0)
    await pair.until(lambda: pair.steps_heard() == steps)
    assert len(pair.heard) == WINDOW + 1
    news = [event for message in pair.steps() for event in message.events]
    assert [t for e in news if e.id == 1 for t in e.tokens] == list(range(steps))
    assert [-t for e in news if e.id == 2 for t in e.tokens] == list(range(steps))
    assert [e.id for e in news if e.finish] == [2]
    assert news[-1].receipt == RECEIPT
    assert pair.steps()[-1].stats.running == steps - 1


async def test_a_front_end_that_reads_gets_a_message_a_step(pair: Pair) -> None:
    for n in range(50):
        pair.engine.send([token(1, n)], step())
        await pair.until(lambda n=n: pair.steps_heard() == n + 1)
        pair.engine.receive(1.0)
    assert len(pair.heard) == 50


async def test_an_acknowledgement_alone_sends_what_waits(pair: Pair) -> None:
    for n in range(WINDOW + 1):
        pair.engine.send([token(1, n)], step())
    await pair.until(lambda: len(pair.heard) == WINDOW)
    assert pair.engine.receive(None) == []
    await pair.until(lambda: len(pair.heard) == WINDOW + 1)


async def test_a_listener_that_raises_costs_one_message_and_no_credit(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    def raise_once(event: Event) -> None:
        pair.front._on_event = pair.heard.append
        raise RuntimeError("a listener's bug")

    pair.front._on_event = raise_once
    for n in range(WINDOW):
        pair.engine.send([token(1, n)], step())
    await pair.until(lambda: len(pair.heard) == WINDOW - 1)
    assert "a listener's bug" in caplog.text
    await pair.until(lambda: not pair.engine.receive(0) and pair.engine._credit == WINDOW)


async def test_sending_does_not_swallow_the_signal_of_what_arrives(pair: Pair) -> None:
    """The socket's descriptor signals once; a send in between must not hide a message."""
    pair.engine.announce(READY)
    await pair.until(lambda: bool(pair.heard))
    for n in range(300):
        pair.engine.send([token(1, n)], step())
        for _ in range(n % 7):
            pair.front.send(End(0, Finish.CANCELLED))
        # Acknowledgements may be late: the engine looks for them, as its loop does.
        await pair.until(lambda n=n: not pair.engine.receive(0) and pair.steps_heard() == n + 1)


async def test_last_words_come_after_all_news_even_without_credit(pair: Pair) -> None:
    for n in range(WINDOW + 5):
        pair.engine.send([token(1, n)], step())
    dying = asyncio.to_thread(pair.engine.fail, "broken")
    task = asyncio.create_task(dying)
    await pair.until(lambda: Failed(7, "broken") in pair.heard)
    assert pair.steps_heard() == WINDOW + 5
    assert isinstance(pair.heard[-1], Failed)
    pair.front.send(Stop())
    await asyncio.wait_for(task, 1)


async def test_questions_and_answers_arrive_as_they_were_sent(pair: Pair) -> None:
    pair.engine.announce(READY)
    await pair.until(lambda: bool(pair.heard))
    questions = [SetScheduler(1, "fair", {"weights": {"ü": 2}}), Inspect(2)]
    for question in questions:
        pair.front.send(question)
    assert [command for _ in questions for command in pair.engine.receive(0.05)] == questions
    state = RequestState(1, "swapped", "ü", 4, 0.5, 9, 1, 8, 0, 3, 2, 7)
    scheduler = SchedulerState("fair", {"weights": {"ü": 2}}, 3, "priority")
    pair.engine.answer(SchedulerSet(0, 1, "no"))
    pair.engine.answer(Inspected(0, 2, scheduler, [state]))
    await pair.until(lambda: len(pair.heard) == 3)
    assert pair.heard[1:] == [SchedulerSet(7, 1, "no"), Inspected(7, 2, scheduler, [state])]


async def test_an_answer_waits_for_no_credit_and_costs_none(pair: Pair) -> None:
    for n in range(WINDOW + 3):
        pair.engine.send([token(1, n)], step())
    for ticket in range(9):
        pair.engine.answer(SchedulerSet(0, ticket))
    await pair.until(lambda: len(pair.heard) == WINDOW + 9)
    assert len(pair.steps()) == WINDOW
    await pair.until(lambda: not pair.engine.receive(0) and pair.steps_heard() == WINDOW + 3)
    await pair.until(lambda: not pair.engine.receive(0) and pair.engine._credit == WINDOW)


def test_every_field_of_the_stats_is_a_gauge_or_adds_up() -> None:
    assert {*COUNTERS, *TALLIES, *GAUGES} == set(StepStats.__struct_fields__)
    assert len(COUNTERS) + len(TALLIES) + len(GAUGES) == len(StepStats.__struct_fields__)


def test_evictions_of_one_kind_add_up_and_pauses_keep_their_order() -> None:
    outbox = Outbox()
    for n, kind in enumerate(["swap pages", "swap rows", "swap pages"]):
        pause = Pause(float(n), "swap", "pages", n)
        news = [RequestEvent(1, paused=[pause], resumed_s=[n + 0.5])]
        outbox.add(news, StepStats(evictions={kind: n + 1}, copy_s=0.5))
    message = outbox.take(1)
    assert message.stats.evictions == {"swap pages": 4, "swap rows": 2}
    assert message.stats.copy_s == 1.5
    [event] = message.events
    assert [pause.at_s for pause in event.paused] == [0.0, 1.0, 2.0]
    assert event.resumed_s == [0.5, 1.5, 2.5]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.booleans()), max_size=30))
def test_merged_news_say_the_same_as_single_ones(steps: list[tuple[int, int, bool]]) -> None:
    """For each step: whose news, how many tokens, and whether the outbox is emptied then."""
    outbox, messages, said = Outbox(), [], []
    for n, (id, count, emptied) in enumerate(steps):
        tokens = [n * 10 + i for i in range(count)]
        said.append((id, tokens))
        outbox.add([token(id, *tokens)], StepStats(free_pages=n, steps=1, model_s=0.5))
        if emptied:
            messages.append(outbox.take(1))
    if outbox:
        messages.append(outbox.take(1))
    for id in (1, 2, 3):
        whole = [t for i, tokens in said if i == id for t in tokens]
        assert whole == [t for m in messages for e in m.events if e.id == id for t in e.tokens]
    assert all(len({e.id for e in m.events}) == len(m.events) for m in messages)
    assert sum(m.stats.steps for m in messages) == len(steps)
    assert sum(m.stats.model_s for m in messages) == 0.5 * len(steps)
    if messages:
        assert messages[-1].stats.free_pages == len(steps) - 1
