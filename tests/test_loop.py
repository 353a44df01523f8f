import sys

import pytest

from models.batch import StepBatch, StepResult
from schedulers.fcfs import FCFS, FCFSOptions
from schedulers.interface import Plan, Snapshot
from service.channel import Told
from service.core import Core
from service.loop import MAX_FAULTS, NO_STEP_WAIT_S, DecodeLoop, EngineBroken
from service.messages import (
    End,
    Finish,
    Inspect,
    Inspected,
    RequestEvent,
    RequestState,
    SchedulerSet,
    SchedulerState,
    SetScheduler,
    StepStats,
    Stop,
)
from tests.cores import RaisingRunner, make_core, make_submit, make_toy, solo, step_once

Commands = list[Told]


class Script:
    """A channel whose commands are written down: one batch a call, then Stop."""

    def __init__(self, *batches: Commands) -> None:
        self._batches = list(batches)
        self.waits: list[float | None] = []
        self.sent: list[tuple[list[RequestEvent], StepStats]] = []
        self.answers: list[SchedulerSet | Inspected] = []

    def receive(self, wait_s: float | None) -> Commands:
        self.waits.append(wait_s)
        return self._batches.pop(0) if self._batches else [Stop()]

    def send(self, events: list[RequestEvent], stats: StepStats) -> None:
        self.sent.append((events, stats))

    def answer(self, answer: SchedulerSet | Inspected) -> None:
        self.answers.append(answer)

    def finish(self) -> dict[int, Finish | None]:
        return {e.id: e.finish for events, _ in self.sent for e in events if e.finish}

    def tokens(self, id: int) -> list[int]:
        return [t for events, _ in self.sent for e in events if e.id == id for t in e.tokens]


class Breathless:
    """A runner without memory."""

    def step(self, batch: StepBatch) -> StepResult:
        raise MemoryError


def run_loop(script: Script, raising: tuple[int, ...] = ()) -> Core:
    core = make_core()
    DecodeLoop(core, RaisingRunner(make_toy(core), raising), script).run()
    return core


def submits(*ids: int, max_tokens: int = 1) -> Commands:
    return [make_submit(id, max_tokens=max_tokens) for id in ids]


def test_the_answer_is_that_of_the_core() -> None:
    submit = make_submit(1, max_tokens=6)
    script = Script([submit], *[[]] * 6)
    run_loop(script)
    assert script.tokens(1) == solo(submit)
    assert script.finish() == {1: Finish.LENGTH}


def test_it_sleeps_without_work_and_never_waits_with_work() -> None:
    script = Script(submits(1, max_tokens=3), [], [])
    run_loop(script)
    assert script.waits == [None, 0, 0, None]


def test_each_step_is_reported_even_without_news_of_a_request() -> None:
    script = Script([make_submit(1, prompt=range(1, 10), max_tokens=1)], [])
    core = make_core(budget=5)
    DecodeLoop(core, make_toy(core), script).run()
    assert [stats.steps for _, stats in script.sent] == [1, 1]


def test_a_wake_up_without_command_or_work_is_not_answered() -> None:
    script = Script([], [], [])
    run_loop(script)
    assert script.sent == []


def test_an_end_is_reported_though_nothing_is_left_to_compute() -> None:
    script = Script(submits(1, max_tokens=9), [End(1, Finish.CANCELLED)])
    core = run_loop(script)
    assert script.finish() == {1: Finish.CANCELLED}
    assert script.sent[-1][1].running == 0
    assert not core.has_work


def test_a_step_that_raises_ends_its_rows_and_no_others() -> None:
    script = Script(submits(1), submits(2), [])
    core = run_loop(script, raising=(1,))
    assert script.finish() == {1: Finish.FAILED, 2: Finish.LENGTH}
    assert core.residency.pages.free_pages == core.residency.pages.capacity


def test_three_raising_steps_in_a_row_end_the_loop_after_their_news() -> None:
    script = Script(*[submits(id) for id in range(1, 9)])
    with pytest.raises(EngineBroken, match="3 steps in a row"):
        run_loop(script, raising=(2, 3, 4))
    assert script.finish() == {1: Finish.LENGTH} | dict.fromkeys((2, 3, 4), Finish.FAILED)


def test_a_good_step_between_forgives_the_raising_ones() -> None:
    script = Script(*[submits(id) for id in range(1, 8)])
    run_loop(script, raising=(1, 2, 4, 5, 7))
    assert list(script.finish().values()).count(Finish.FAILED) == 5 > MAX_FAULTS


def test_a_step_without_memory_ends_the_loop_at_once() -> None:
    with pytest.raises(EngineBroken, match="memory"):
        DecodeLoop(make_core(), Breathless(), Script(submits(1))).run()


def test_planning_time_is_reported() -> None:
    script = Script(submits(1))
    core, ticks = make_core(), iter(range(1000))
    DecodeLoop(core, make_toy(core), script, clock=lambda: float(next(ticks))).run()
    assert script.sent[0][1].schedule_s == 1.0


def test_work_that_cannot_be_computed_now_does_not_spin() -> None:
    class Stuck:
        has_work = True
        steps_in_flight = 1

        def begin(self, now_s: float) -> None: ...

        def take_events(self) -> tuple[list[RequestEvent], StepStats]:
            return [], StepStats()

    script = Script([], [])
    DecodeLoop(Stuck(), Breathless(), script).run()
    assert script.waits == [None, NO_STEP_WAIT_S, NO_STEP_WAIT_S]
    assert script.sent == []


def test_counts_of_a_turn_without_news_are_told_with_the_next() -> None:
    """Nothing fits, nobody has news, yet a row came up short."""

    class Short(Core):
        def begin(self, now_s: float) -> None:
            self._ledger.stats.short_rows += 1

    short = make_core()
    short.__class__ = Short
    script = Script(submits(1), [], [], submits(2))
    DecodeLoop(short, make_toy(short), script).run()
    assert sum(stats.short_rows for _, stats in script.sent) == 4
    assert len(script.sent) == 2


def test_a_strategy_is_exchanged_between_two_steps_and_disturbs_nobody() -> None:
    submit = make_submit(1, max_tokens=6)
    script = Script([submit], [], [SetScheduler(7, "static")], *[[]] * 4)
    core = run_loop(script)
    assert script.answers == [SchedulerSet(0, 7)]
    assert core.planner.name == "static"
    assert script.tokens(1) == solo(submit)


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("nonsense", {}, "scheduler 'nonsense' is unknown"),
        ("static", {"speed": 9}, "has no option 'speed'"),
        ("tests.no_such_module:Here", {}, "cannot be loaded"),
        ("tests.misbehaving:NotMade", {}, "no licence"),
        ("tests.misbehaving:MadeByExiting", {}, "cannot be made"),
        ("tests.exits_on_import:Here", {}, "cannot be loaded"),
        ("tests.cores:Answers", {}, "lacks Options"),
    ],
)
def test_what_cannot_be_put_in_place_is_answered_and_the_strategy_stays(
    name: str, options: dict[str, object], line: str
) -> None:
    submit = make_submit(1, max_tokens=6)
    script = Script([submit], [SetScheduler(7, name, options)], *[[]] * 6)
    core = run_loop(script)
    [answer] = script.answers
    assert isinstance(answer, SchedulerSet)
    assert line in (answer.error or "")
    assert "\n" not in (answer.error or "")
    assert core.planner.name == "under test"
    assert script.tokens(1) == solo(submit)


def test_whoever_looks_in_sees_every_live_request_and_the_strategy() -> None:
    prompts = {1: [1] * 3, 2: [2] * 9}
    submits = [make_submit(id, prompt, tenant="a") for id, prompt in prompts.items()]
    script = Script(submits, [SetScheduler(1, "static"), Inspect(2)])
    core = make_core(rows=1)
    ticks = iter(range(10, 999))
    DecodeLoop(core, make_toy(core), script, clock=lambda: float(next(ticks))).run()
    seen = script.answers[-1]
    assert isinstance(seen, Inspected)
    assert seen.ticket == 2
    assert seen.scheduler == SchedulerState("static", {}, 0)
    runs, waits = seen.requests
    assert runs == RequestState(1, "running", "a", 4, runs.age_s, 3, 1, 3, 2, 0, 0, 0)
    assert waits == RequestState(2, "waiting", "a", 4, waits.age_s, 9, 0, 0, 0, 0, 0, 0)
    assert runs.age_s == waits.age_s + 1 > 0


def test_whoever_looks_in_learns_that_fcfs_stands_in() -> None:
    class Raises(FCFS):
        def plan(self, snap: Snapshot) -> Plan:
            sys.exit("a plug-in's mistake")

    script = Script(submits(1, max_tokens=6), *[[]] * 4, [Inspect(1)])
    core = make_core(strict=False, scheduler=Raises(FCFSOptions()))
    DecodeLoop(core, make_toy(core), script).run()
    [seen] = script.answers
    assert isinstance(seen, Inspected)
    assert seen.scheduler == SchedulerState("fcfs", {"eviction": "recompute"}, 3, "under test")


def test_a_flag_is_up_while_a_strategy_plans_and_not_for_who_stands_in() -> None:
    seen: list[bool] = []

    class Looks(FCFS):
        def plan(self, snap: Snapshot) -> Plan:
            seen.append(core.planner.flag.value)
            return super().plan(snap)

    class Illegal(Looks):
        def plan(self, snap: Snapshot) -> Plan:
            super().plan(snap)
            return Plan({99: 1})

    core = make_core(strict=False, scheduler=Illegal(FCFSOptions()))
    core.planner._fallback = Looks(FCFSOptions())
    toy = make_toy(core)
    core.submit(make_submit(1, max_tokens=9))
    for _ in range(5):
        step_once(core, toy)
        assert not core.planner.flag.value
    assert seen == [True, False] * 3 + [False] * 2
