"""What a bad plug-in may do to the service: cost speed, and nothing else. Over the wire."""

import time
from collections.abc import Iterator
from typing import ClassVar

import grpc
import pytest
import structlog
from structlog.testing import capture_logs

from protos.walkway.v1 import inference_pb2 as pb
from schedulers.interface import Plan, Refusal, Snapshot
from service.build import build
from service.planner import STRIKES, BrokenScheduler
from tests.bad_schedulers import Good, NoOptions
from tests.cores import make_submit, make_toy, step_once
from tests.wire import Wire, ask, make_settings, serving, status_of

LATE_S = 0.15


class Counting(Good):
    """Counts how often it is asked; the engine runs in this process."""

    asked: ClassVar[int] = 0

    def __init__(self, options: NoOptions) -> None:
        super().__init__(options)
        type(self).asked = 0

    def plan(self, snap: Snapshot) -> Plan:
        type(self).asked += 1
        return super().plan(snap)


class Raises(Counting):
    """Whatever it is asked."""

    def answer(self, snap: Snapshot) -> Plan:
        raise ZeroDivisionError("in a plug-in")


class Panic(BaseException):
    """What libraries raise that are written in Rust."""

    def __repr__(self) -> str:
        raise RuntimeError("not even this works")


class Panics(Counting):
    """Whatever it is asked, past any `except Exception`."""

    def answer(self, snap: Snapshot) -> Plan:
        raise Panic("in a plug-in")


class Illegal(Counting):
    """Far over the budget."""

    def answer(self, snap: Snapshot) -> Plan:
        return Plan(dict.fromkeys(snap.waiting, 10**9))


class NoPlanAtAll(Counting):
    """Forgot to return it."""

    def answer(self, snap: Snapshot) -> Plan:
        return None  # type: ignore[return-value]


class Refuses(Counting):
    """Everybody who waits, which is its right."""

    def answer(self, snap: Snapshot) -> Plan:
        return Plan({}, {}, dict.fromkeys(snap.waiting, Refusal(2.5)))


class Late(Counting):
    """Right, and too slow."""

    def answer(self, snap: Snapshot) -> Plan:
        time.sleep(LATE_S)
        return super().answer(snap)


class OddSteps(Counting):
    """Raises every other time: never thrice in a row."""

    def answer(self, snap: Snapshot) -> Plan:
        if self.asked % 2:
            raise ZeroDivisionError("in a plug-in")
        return super().answer(snap)


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def under(scheduler: type[Counting] | str, check: bool = False):
    """A service of the toy by that scheduler."""
    name = scheduler if isinstance(scheduler, str) else named(scheduler)
    groups = {"memory": {"num_pages": 64}, "engine": {"check": check}}
    return serving(build, scheduler={"name": name}, **groups)


def named(scheduler: type[Counting]) -> str:
    return f"{__name__}:{scheduler.__name__}"


async def answer(wire: Wire) -> str:
    return (await wire.stub.Generate(ask("hello", max_tokens=12))).text


def faults(wire: Wire) -> float:
    return wire.gauge("plan_faults_total")


@pytest.mark.parametrize("check", [False, True], ids=["", "checked"])
@pytest.mark.parametrize("bad", [Raises, Panics, Illegal, NoPlanAtAll, Late])
async def test_after_three_bad_plans_in_a_row_fcfs_serves_the_same_answer(
    bad: type[Counting], check: bool
) -> None:
    async with under("fcfs") as wire:
        expected = await answer(wire)
    with capture_logs() as said:
        async with under(bad, check) as wire:
            assert await answer(wire) == expected
            assert await answer(wire) == expected
            await wire.until(lambda: faults(wire) == STRIKES)
            assert bad.asked == STRIKES
            info = await wire.stub.GetModelInfo(pb.GetModelInfoRequest())
            assert info.scheduler == "fcfs"
            await wire.settled()
    events = [line["event"] for line in said if line["event"].startswith("scheduler")]
    assert events == ["scheduler fault"] * STRIKES + ["scheduler replaced"]


@pytest.mark.parametrize("bad", [Raises, Illegal])
def test_with_check_on_only_the_fault_of_a_built_in_strategy_raises(
    bad: type[Counting],
) -> None:
    """By the name that it was put in place under, whatever was there before."""
    core = build(make_settings(engine={"check": True})).core
    toy, strategy = make_toy(core), bad(NoOptions())
    core.submit(make_submit(1))
    core.planner.exchange(named(bad), strategy)
    assert step_once(core, toy) is not None
    core.planner.exchange("static", strategy)
    with pytest.raises((BrokenScheduler, ZeroDivisionError)):
        step_once(core, toy)


async def test_faults_that_are_not_in_a_row_are_counted_and_cost_no_strategy_its_place() -> (
    None
):
    async with under(OddSteps) as wire:
        await answer(wire)
        await wire.until(lambda: faults(wire) > STRIKES)
        assert OddSteps.asked > 2 * STRIKES
        await wire.settled()


async def test_a_stream_goes_on_through_the_fault_of_another_plan() -> None:
    """What was streamed before the strategy broke is not said again, nor anything lost."""
    async with under("fcfs") as wire:
        expected = await answer(wire)
    async with under(OddSteps) as wire:
        call = wire.stub.GenerateStream(ask("hello", max_tokens=12))
        assert "".join([message.text async for message in call]) == expected


async def test_a_refusal_is_no_fault_and_the_caller_is_told_the_estimate() -> None:
    async with under(Refuses) as wire:
        error = await status_of(wire.stub.Generate(ask("hello")))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "2.500 s" in (error.details() or "")
        await wire.settled()
        assert faults(wire) == 0
