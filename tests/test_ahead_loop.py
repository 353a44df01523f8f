"""The decode loop with two steps in flight, and the service on top of it once."""

from collections.abc import Callable
from typing import Any

import pytest

from models.batch import Landing, StepBatch, StepResult
from models.errors import DeviceLost, ModelError
from protos.walkway.v1 import inference_pb2 as pb
from schedulers.interface import Plan
from service.build import build
from service.core import Core
from service.loop import DecodeLoop, EngineBroken
from service.messages import End, Finish, SetScheduler
from service.settings import Settings
from tests.cores import RaisingRunner, Scripted, make_core, make_submit, make_toy, solo
from tests.late import Late
from tests.test_ahead import RECOMPUTE
from tests.test_loop import Script
from tests.wire import ask, collect, serving, toy_build

TWO = 2
SMALL = {"num_pages": 400}  # every page is looked at after every change


class Failing(Late):
    """Steps whose numbers are named raise: when they are started, or when they are landed."""

    def __init__(
        self,
        core: Core,
        at_start: tuple[int, ...] = (),
        at_landing: tuple[int, ...] = (),
        error: BaseException | None = None,
    ) -> None:
        super().__init__(make_toy(core))
        self._at_start, self._at_landing = at_start, at_landing
        self._error = error or RuntimeError("step failed")
        self._count = 0

    def start(self, batch: StepBatch) -> Landing:
        self._count += 1
        if self._count in self._at_start:
            raise self._error
        landing = super().start(batch)
        return self._raises(landing) if self._count in self._at_landing else landing

    def _raises(self, landing: Landing) -> Landing:
        def land() -> StepResult:
            landing()
            raise self._error

        return land


def loop_of(script: Script, runner: Callable[[Core], Late], **sizes: Any) -> tuple[Core, Late]:
    core = make_core(pages=20, steps_in_flight=TWO, **sizes)
    late = runner(core)
    DecodeLoop(core, late, script).run()
    return core, late


def late(core: Core) -> Late:
    return Late(make_toy(core))


def test_answers_are_those_of_the_core_and_two_steps_are_in_flight() -> None:
    submits = [make_submit(id, prompt=[id] * 3, max_tokens=6) for id in (1, 2)]
    script = Script([submits[0]], [submits[1]], *[[]] * 8)
    core, runner = loop_of(script, late)
    assert {s.id: script.tokens(s.id) for s in submits} == {s.id: solo(s) for s in submits}
    assert script.finish() == {1: Finish.LENGTH, 2: Finish.LENGTH}
    assert runner.most == TWO
    assert not core.has_work


def test_it_lands_what_is_in_flight_rather_than_spin_or_sleep() -> None:
    script = Script([make_submit(1, max_tokens=2)], *[[]] * 4)
    loop_of(script, late)
    assert script.waits == [None, 0, 0, None, None, None]


def test_it_does_not_sleep_before_a_plan_that_a_step_in_flight_forbade() -> None:
    plans = (Plan({1: 3, 2: 3}), Plan({1: 1}, {2: RECOMPUTE}))
    script = Script([make_submit(1), make_submit(2)], *[[]] * 9)
    core = make_core(pages=20, budget=20, steps_in_flight=TWO, scheduler=Scripted(*plans))
    DecodeLoop(core, late(core), script).run()
    assert set(script.waits[1:6]) == {0}
    assert script.tokens(2) == solo(make_submit(2))


def test_a_message_goes_out_for_each_step_that_returned() -> None:
    script = Script([make_submit(1, max_tokens=3)], *[[]] * 4)
    loop_of(script, late)
    assert [stats.steps for _, stats in script.sent] == [0, 1, 1, 1]


def test_an_end_between_two_steps_is_told_once() -> None:
    script = Script([make_submit(1, max_tokens=9)], [], [End(1, Finish.CANCELLED)], *[[]] * 3)
    core, _ = loop_of(script, late)
    assert script.finish() == {1: Finish.CANCELLED}
    assert core.residency.pages.free_pages == 20
    assert sum(stats.overrun_tokens for _, stats in script.sent) == 1


def test_a_strategy_is_exchanged_with_a_step_in_flight() -> None:
    submit = make_submit(1, max_tokens=6)
    script = Script([submit], [], [SetScheduler(7, "static")], *[[]] * 6)
    core, _ = loop_of(script, late)
    assert core.planner.name == "static"
    assert script.tokens(1) == solo(submit)


@pytest.mark.parametrize("where", ["at_start", "at_landing"])
def test_a_step_that_raises_ends_its_rows_and_no_others(where: str) -> None:
    one, two = make_submit(1, max_tokens=9), make_submit(2, prompt=[7] * 3)
    script = Script([one], [], [two], *[[]] * 9)
    core, _ = loop_of(script, lambda core: Failing(core, **{where: (2,)}), rows=1)
    assert script.finish() == {1: Finish.FAILED, 2: Finish.LENGTH}
    assert script.tokens(2) == solo(two)
    assert core.residency.pages.free_pages == 20


@pytest.mark.parametrize("where", ["at_start", "at_landing"])
def test_three_raising_steps_in_a_row_end_the_loop_after_their_news(where: str) -> None:
    script = Script(*[[make_submit(id, max_tokens=1)] for id in range(1, 9)])
    with pytest.raises(EngineBroken, match="3 steps in a row"):
        loop_of(script, lambda core: Failing(core, **{where: (2, 3, 4)}))
    assert script.finish() == {1: Finish.LENGTH} | dict.fromkeys((2, 3, 4), Finish.FAILED)


@pytest.mark.parametrize("where", ["at_start", "at_landing"])
@pytest.mark.parametrize(
    ("error", "line"), [(MemoryError(), "memory"), (DeviceLost("xid 79"), "xid 79")]
)
def test_without_memory_or_device_the_loop_ends_at_once(
    where: str, error: Exception, line: str
) -> None:
    script = Script([make_submit(1, max_tokens=9)], *[[]] * 9)
    with pytest.raises(EngineBroken, match=line):
        loop_of(script, lambda core: Failing(core, **{where: (2,)}, error=error))


def test_a_lost_device_ends_the_loop_with_one_step_in_flight_too() -> None:
    class Gone:
        def step(self, batch: StepBatch) -> StepResult:
            raise DeviceLost("xid 79")

    with pytest.raises(EngineBroken, match="xid 79"):
        DecodeLoop(make_core(), Gone(), Script([make_submit(1)])).run()


def test_a_step_is_measured_from_the_landing_before_it() -> None:
    """A clock of one second a look: a turn looks when it begins, when it has planned and
    when a step has landed. From the third step on landings are 3 s apart."""
    core = make_core(pages=20, steps_in_flight=TWO)
    ticks = iter(range(1000))
    script = Script([make_submit(1, max_tokens=18)], *[[]] * 15)
    loop = DecodeLoop(core, late(core), script, lambda: float(next(ticks)))
    loop.run()
    assert core.costs.token_s == core.costs.pair_s == core.costs.page_s == 0
    assert core.costs.step_s + core.costs.decode_s(1, 10) == pytest.approx(3.0, rel=1e-3)


class AtOnce:
    """Computes in `start`, for a second a token, as the toy does; at landing nothing is left.
    Time goes by here alone."""

    def __init__(self, core: Core) -> None:
        self._toy = make_toy(core)
        self.now_s = 0.0

    def start(self, batch: StepBatch) -> Landing:
        self.now_s += sum(len(row.tokens) for row in batch.rows)
        return self._toy.start(batch)


def test_a_step_that_is_over_when_it_was_started_is_not_charged_for_the_next() -> None:
    core = make_core(pages=60, steps_in_flight=TWO)
    runner = AtOnce(core)
    joining = [[make_submit(id, prompt=[id] * 5, max_tokens=8)] for id in range(2, 6)]
    script = Script(
        [make_submit(1, max_tokens=40)], *[b for j in joining for b in (j, *[[]] * 9)]
    )
    DecodeLoop(core, runner, script, lambda: runner.now_s).run()
    assert (core.costs.token_s, core.costs.row_s) == pytest.approx((1.0, 1.0), abs=0.2)


def test_two_steps_in_flight_need_a_runner_that_can_start_them() -> None:
    core = make_core(steps_in_flight=TWO)
    runner = RaisingRunner(make_toy(core), ())
    with pytest.raises(ModelError, match=r"engine\.steps_in_flight is 2.* one step at a time"):
        DecodeLoop(core, runner, Script())


def test_the_engine_is_built_as_the_settings_say() -> None:
    for steps in (1, 2):
        settings = Settings(model={"source": "toy"}, engine={"steps_in_flight": steps})
        assert build(settings).core.steps_in_flight == steps


async def test_streams_say_the_same_with_two_steps_in_flight() -> None:
    requests = [
        ask(f"request {n}", max_tokens=10 + 9 * n, output=pb.Output(token_ids=True, logprobs=2))
        for n in range(4)
    ]
    told = []
    for steps in (1, 2):
        engine = {"steps_in_flight": steps, "check": True}
        async with serving(build, engine=engine, memory=SMALL) as wire:
            calls = [collect(wire.stub.GenerateStream(request)) for request in requests]
            told.append([])
            for call in calls:
                messages = await call
                told[-1].append([t for m in messages for t in m.token_ids])
                assert messages[-1].summary.finish_reason == pb.FINISH_REASON_LENGTH
            await wire.settled()
    assert told[0] == told[1]


async def test_a_stop_string_and_a_client_that_leaves_end_what_runs_ahead() -> None:
    engine = {"steps_in_flight": 2, "check": True}
    async with serving(build, engine=engine, memory=SMALL) as wire:
        whole = (await wire.stub.Generate(ask(max_tokens=30))).text
        stopping = pb.Stopping(stop_strings=[whole[9:12]])
        stopped = await wire.stub.Generate(ask(max_tokens=30, stopping=stopping))
        assert stopped.text == whole[: whole.index(whole[9:12])]
        call = wire.stub.GenerateStream(ask(max_tokens=5000))
        await anext(call.__aiter__())
        call.cancel()
        await wire.settled()
        again = await wire.stub.Generate(ask(max_tokens=30))
        assert again.text == whole


async def test_a_model_of_one_step_at_a_time_is_refused_at_start() -> None:
    def one_at_a_time(settings: Settings) -> Any:
        built = toy_build()(settings)
        built.core.steps_in_flight = TWO
        return built

    with pytest.raises(Exception, match="computes one step at a time") as caught:
        async with serving(one_at_a_time, engine={"steps_in_flight": 2}):
            pass
    assert "\n" not in str(caught.value)
