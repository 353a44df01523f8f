import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from service.build import build
from service.engine_process import Build, one_line
from service.messages import (
    End,
    Finish,
    Inspect,
    Inspected,
    Ready,
    SchedulerSet,
    SetScheduler,
    StepEvents,
    Submit,
)
from service.restarts import RestartLimits, Restarts
from service.settings import Engine, Model, SchedulerChoice, Settings
from service.stalls import StallWatch
from service.supervisor import EngineDown, EngineLost, StartupError, Supervisor
from tests import engine_builds as builds
from tests.cores import make_submit, solo

FEW, MANY = 5, 5000


def make_settings(**engine: object) -> Settings:
    chosen = {"isolation": "process", "restart_backoff_s": 0.02, "max_rows": 8} | engine
    return Settings(engine=Engine(**chosen))


def toy_settings(scheduler: str = "fcfs", **engine: object) -> Settings:
    """For the service's own build, which makes the chosen strategy."""
    groups = {"model": Model(source="toy"), "scheduler": SchedulerChoice(name=scheduler)}
    return make_settings(**engine).model_copy(update=groups)


class Front:
    """A listener that keeps what it heard."""

    def __init__(self) -> None:
        self.ready: list[Ready] = []
        self.down: list[tuple[float, str]] = []
        self.tokens: dict[int, list[int]] = {}
        self.finish: dict[int, Finish] = {}
        self.answers: dict[int, SchedulerSet | Inspected] = {}

    def on_ready(self, ready: Ready) -> None:
        self.ready.append(ready)

    def on_down(self, why: str) -> None:
        self.down.append((time.monotonic(), why))

    def on_events(self, events: StepEvents) -> None:
        assert events.generation == self.ready[-1].generation
        for event in events.events:
            assert event.id not in self.finish
            self.tokens.setdefault(event.id, []).extend(event.tokens)
            if event.finish:
                self.finish[event.id] = event.finish

    def on_answer(self, answer: SchedulerSet | Inspected) -> None:
        assert answer.generation == self.ready[-1].generation
        self.answers[answer.ticket] = answer


async def until(there: Callable[[], object], timeout_s: float = 60.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not there():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


@asynccontextmanager
async def supervised(
    front: Front,
    build: Build = builds.touchy,
    settings: Settings | None = None,
    **engine: object,
) -> AsyncIterator[tuple[Supervisor, asyncio.Task[None]]]:
    supervisor = Supervisor(settings or make_settings(**engine), build, front)
    try:
        await supervisor.start()
        running = asyncio.create_task(supervisor.run())
        yield supervisor, running
    finally:
        await supervisor.stop()
    with suppress(EngineLost):
        await running


def engine_pid() -> int:
    [engine] = [p for p in multiprocessing.active_children() if p.name.startswith("walkway")]
    assert engine.pid is not None
    return engine.pid


def request(id: int, first: int = 1, max_tokens: int = FEW) -> Submit:
    return make_submit(id, prompt=(first, 2, 3), max_tokens=max_tokens)


async def serves(supervisor: Supervisor, front: Front, id: int) -> None:
    """A new request is answered, and rightly."""
    supervisor.send(request(id))
    await until(lambda: id in front.finish)
    assert front.tokens[id] == solo(request(id))


async def asked(
    supervisor: Supervisor, front: Front, question: SetScheduler | Inspect
) -> SchedulerSet | Inspected:
    supervisor.send(question)
    await until(lambda: question.ticket in front.answers)
    return front.answers[question.ticket]


async def planner(supervisor: Supervisor, front: Front, ticket: int) -> tuple[str, str]:
    """The strategy that plans, and the one it stands in for."""
    seen = await asked(supervisor, front, Inspect(ticket))
    assert isinstance(seen, Inspected)
    return seen.scheduler.name, seen.scheduler.replaces


@pytest.mark.parametrize("isolation", ["process", "inline"])
async def test_requests_are_answered_and_stopping_leaves_nothing(isolation: str) -> None:
    front = Front()
    async with supervised(front, isolation=isolation) as (supervisor, _):
        for id in range(1, 6):
            supervisor.send(request(id))
        assert supervisor.pending == 5
        await until(lambda: len(front.finish) == 5)
        assert supervisor.pending == 0
        directory = supervisor._directory
        assert os.listdir(directory)
    assert all(front.tokens[id] == solo(request(id)) for id in range(1, 6))
    assert front.down == []
    assert not os.path.exists(directory)  # noqa: ASYNC240
    assert multiprocessing.active_children() == []
    await supervisor.stop()


async def test_the_service_s_own_toy_engine_starts() -> None:
    front = Front()
    settings = make_settings().model_copy(update={"model": Model(source="toy")})
    supervisor = Supervisor(settings, build, front)
    ready = await supervisor.start()
    assert (ready.generation, ready.model) == (1, "toy")
    await supervisor.stop()


async def test_an_ended_request_is_told_as_cancelled() -> None:
    front = Front()
    async with supervised(front, isolation="inline") as (supervisor, _):
        supervisor.send(request(1, max_tokens=MANY))
        await until(lambda: front.tokens.get(1))
        supervisor.send(End(1, Finish.CANCELLED))
        supervisor.send(End(99, Finish.CANCELLED))
        await until(lambda: front.finish == {1: Finish.CANCELLED})
        await serves(supervisor, front, 2)


async def test_a_killed_engine_is_noticed_within_a_second_and_comes_back() -> None:
    front = Front()
    async with supervised(front) as (supervisor, _):
        supervisor.send(request(1, max_tokens=MANY))
        await until(lambda: front.tokens.get(1))
        killed_s = time.monotonic()
        os.kill(engine_pid(), signal.SIGKILL)
        await until(lambda: front.down)
        [(down_s, why)] = front.down
        assert down_s - killed_s < 1.0
        assert "SIGKILL" in why
        assert supervisor.ready is None
        assert supervisor.pending == 0
        with pytest.raises(EngineDown) as refused:
            supervisor.send(request(2))
        assert refused.value.retry_after_s > 0
        supervisor.send(End(1, Finish.CANCELLED))
        await until(lambda: len(front.ready) == 2)
        assert [ready.generation for ready in front.ready] == [1, 2]
        await serves(supervisor, front, 3)
        assert 1 not in front.finish


async def test_a_frozen_step_is_a_stall_that_ends_in_a_restart() -> None:
    front = Front()
    async with supervised(front, stall_timeout_s=0.4) as (supervisor, _):
        await asyncio.sleep(0.8)
        assert front.down == [], "an idle engine does not stall"
        supervisor.send(request(1, max_tokens=MANY))
        await until(lambda: front.tokens.get(1))
        sent_s = time.monotonic()
        supervisor.send(request(2, first=builds.SLEEP))
        await until(lambda: front.down)
        assert 0.3 <= front.down[0][0] - sent_s < 1.4
        assert "no step for 0.4 s" in front.down[0][1]
        await until(lambda: len(front.ready) == 2)
        await serves(supervisor, front, 3)
        assert (await planner(supervisor, front, 1))[1] == "", "the strategy is blamed"


@pytest.mark.parametrize("busy", [False, True])
async def test_a_stopped_engine_is_noticed_with_and_without_work(busy: bool) -> None:
    front = Front()
    async with supervised(front, stall_timeout_s=0.8) as (supervisor, _):
        if busy:
            supervisor.send(request(1, max_tokens=MANY))
            await until(lambda: front.tokens.get(1))
        stopped_s = time.monotonic()
        os.kill(engine_pid(), signal.SIGSTOP)
        await until(lambda: front.down)
        assert 0.6 <= front.down[0][0] - stopped_s < 1.8
        assert ("no step" if busy else "did not answer") in front.down[0][1]
        await until(lambda: len(front.ready) == 2)
        await serves(supervisor, front, 3)


async def test_an_engine_that_was_stopped_for_less_than_the_time_out_goes_on() -> None:
    front = Front()
    async with supervised(front, stall_timeout_s=2.0) as (supervisor, _):
        supervisor.send(request(1))
        for number in (signal.SIGSTOP, signal.SIGCONT):
            os.kill(engine_pid(), number)
            await asyncio.sleep(0.7)
        await serves(supervisor, front, 2)
        assert (front.down, len(front.ready)) == ([], 1)


def trouble(id: int) -> Submit:
    return make_submit(id, max_tokens=FEW, tenant="trouble")


HANGS, EXITS = "tests.misbehaving:Hangs", "tests.misbehaving:Exits"


@pytest.mark.parametrize(("strategy", "why"), [(HANGS, "no step"), (EXITS, "code 3")])
async def test_fcfs_stands_in_for_a_strategy_whose_plan_ended_the_engine(
    strategy: str, why: str
) -> None:
    front = Front()
    settings = toy_settings(strategy, stall_timeout_s=0.4)
    async with supervised(front, build, settings) as (supervisor, _):
        assert await planner(supervisor, front, 1) == (strategy, "")
        await serves(supervisor, front, 1)
        supervisor.send(trouble(2))
        await until(lambda: front.down)
        assert why in front.down[0][1]
        await until(lambda: len(front.ready) == 2)
        assert [ready.scheduler for ready in front.ready] == [strategy, "fcfs"]
        assert await planner(supervisor, front, 2) == ("fcfs", strategy)
        supervisor.send(trouble(3))
        await serves(supervisor, front, 4)
        assert front.finish.keys() == {1, 3, 4}


async def test_an_engine_starts_again_with_the_strategy_that_was_in_place_last() -> None:
    front = Front()
    async with supervised(front, build, toy_settings(EXITS)) as (supervisor, _):
        supervisor.send(trouble(1))
        await until(lambda: len(front.ready) == 2)
        os.kill(engine_pid(), signal.SIGKILL)
        await until(lambda: len(front.ready) == 3)
        assert await planner(supervisor, front, 1) == ("fcfs", EXITS)
        told = await asked(supervisor, front, SetScheduler(2, "static"))
        assert told == SchedulerSet(3, 2)
        refused = await asked(supervisor, front, SetScheduler(3, "nonsense"))
        assert isinstance(refused, SchedulerSet)
        assert "'nonsense' is unknown" in (refused.error or "")
        os.kill(engine_pid(), signal.SIGKILL)
        await until(lambda: len(front.ready) == 4)
        assert front.ready[3].scheduler == "static"
        assert await planner(supervisor, front, 4) == ("static", "")


async def test_a_slow_step_or_a_blocked_event_loop_is_no_stall() -> None:
    front = Front()
    timeout_s = 2 * builds.NAP_S
    async with supervised(front, stall_timeout_s=timeout_s) as (supervisor, _):
        supervisor.send(request(1, first=builds.NAP, max_tokens=2))
        await asyncio.sleep(builds.NAP_S / 2)
        time.sleep(timeout_s)  # noqa: ASYNC251
        await until(lambda: 1 in front.finish)
        assert front.down == []


async def test_a_step_that_raises_fails_its_rows_and_the_engine_goes_on() -> None:
    front = Front()
    async with supervised(front) as (supervisor, _):
        supervisor.send(request(1, first=builds.RAISE))
        await until(lambda: front.finish == {1: Finish.FAILED})
        await serves(supervisor, front, 2)
        assert front.down == []


async def test_an_engine_that_gives_up_is_replaced() -> None:
    front = Front()
    async with supervised(front) as (supervisor, _):
        for id in (1, 2, 3):
            supervisor.send(request(id, first=builds.RAISE))
            await until(lambda id=id: id in front.finish)
        await until(lambda: front.down)
        assert "3 steps in a row" in front.down[0][1]
        await until(lambda: len(front.ready) == 2)
        await serves(supervisor, front, 4)


async def test_too_many_deaths_end_the_service() -> None:
    front = Front()
    async with supervised(front, max_deaths=2) as (supervisor, running):
        for generation in (1, 2):
            await until(lambda n=generation: len(front.ready) == n)
            supervisor.send(request(generation, first=builds.KILL))
            await until(lambda n=generation: len(front.down) == n)
        with pytest.raises(EngineLost, match=r"died 2 times.*SIGKILL"):
            await asyncio.wait_for(running, 5)
        with pytest.raises(EngineDown):
            supervisor.send(request(9))


@pytest.mark.parametrize("marker", [builds.NAP, builds.NO_MEMORY])
async def test_the_end_of_an_inline_engine_is_final(marker: int) -> None:
    front = Front()
    hangs = supervised(front, isolation="inline", stall_timeout_s=0.2)
    async with hangs as (supervisor, running):
        supervisor.send(request(1, first=marker))
        with pytest.raises(EngineLost, match="not restarted"):
            await asyncio.wait_for(running, 5)
        assert len(front.down) == 1
        assert front.finish == {}


@pytest.mark.parametrize(
    ("isolation", "build", "line"),
    [
        ("process", builds.without_model, "there is no model at default"),
        ("inline", builds.without_model, "there is no model at default"),
        ("inline", builds.without_memory, "not enough memory for the model and its pages"),
        ("inline", builds.with_a_bug, "KeyError: 'missing'"),
    ],
)
async def test_a_failed_start_is_one_line(isolation: str, build: Build, line: str) -> None:
    front = Front()
    with pytest.raises(StartupError) as failed:
        async with supervised(front, build, isolation=isolation):
            pass
    assert str(failed.value) == line
    assert front.ready == []
    assert front.down == []
    assert multiprocessing.active_children() == []


async def test_a_process_that_dies_while_loading_is_a_failed_start() -> None:
    with pytest.raises(StartupError, match="ended by SIGKILL"):
        async with supervised(Front(), builds.killed_while_loading):
            pass


async def test_signals_to_the_group_reach_the_front_end_alone() -> None:
    front = Front()
    async with supervised(front) as (supervisor, _):
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(engine_pid(), number)
        await asyncio.sleep(0.05)
        await serves(supervisor, front, 1)
        assert front.down == []
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


async def test_stopping_does_not_wait_for_a_restart() -> None:
    front = Front()
    async with supervised(front, restart_backoff_s=30) as (_, running):
        os.kill(engine_pid(), signal.SIGKILL)
        await until(lambda: front.down)
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 2
    assert running.done()


PARENT = """
import asyncio, multiprocessing, sys
from tests import engine_builds as builds
from tests.test_supervisor import Front, engine_pid, make_settings, request
from service.supervisor import Supervisor

async def main():
    supervisor = Supervisor(make_settings(), builds.touchy, Front())
    await supervisor.start()
    supervisor.send(request(1, first=int(sys.argv[1])))
    await asyncio.sleep(0.1)
    print("engine", engine_pid(), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    raise RuntimeError("a bug of the front end")

asyncio.run(main())
"""


@contextmanager
def front_end(first: int, directory: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A front end in a process of its own that crashes when told so, and its engine's pid."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(first)],
        cwd=Path(__file__).parent.parent,
        env=os.environ | {"TMPDIR": str(directory)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        try:
            assert parent.stdout is not None
            lines = (line.split() for line in parent.stdout)
            yield parent, next(int(line[1]) for line in lines if line[0] == "engine")
        finally:
            parent.kill()


def alive(pid: int) -> bool:
    """Running, and not just waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def dies(pid: int, within_s: float) -> bool:
    until_s = time.monotonic() + within_s
    while alive(pid) and time.monotonic() < until_s:
        time.sleep(0.01)
    return not alive(pid)


def test_a_hanging_engine_does_not_outlive_a_killed_front_end(tmp_path: Path) -> None:
    with front_end(builds.SLEEP, tmp_path) as (parent, engine):
        assert alive(engine)
        parent.kill()
        assert dies(engine, within_s=2)


def test_a_front_end_that_crashes_takes_its_engine_along(tmp_path: Path) -> None:
    with front_end(builds.SLEEP, tmp_path) as (parent, engine):
        parent.communicate("now\n", timeout=5)
        assert parent.returncode == 1
        assert dies(engine, within_s=2)


def test_waits_double_up_to_the_longest_and_start_anew_after_a_healthy_period() -> None:
    restarts = Restarts(RestartLimits(0.5, 4.0, max_deaths=9, window_s=1e9))
    waits = [restarts.died(float(n), served_s=0.0) for n in range(5)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 4.0]
    assert restarts.died(100.0, served_s=3.9) == 4.0
    assert restarts.died(200.0, served_s=4.0) == 0.5


def test_old_deaths_are_forgotten() -> None:
    restarts = Restarts(RestartLimits(0.5, 4.0, max_deaths=3, window_s=10.0))
    assert all(restarts.died(n * 5.0, 0.0) is not None for n in range(20))
    assert restarts.died(97.0, 0.0) is None


class Looks:
    """Looks of a StallWatch on a clock that is moved by hand."""

    def __init__(self, timeout_s: float) -> None:
        self.now_s = 1000.0
        self.watch = StallWatch(timeout_s, lambda: self.now_s)

    def look(self, moved: bool, late_s: float = 0.0) -> bool:
        self.now_s += self.watch.look_s + late_s
        return self.watch.look(moved)

    def quiet_s(self, late_s: float = 0.0) -> float:
        """Seconds until a stall shows."""
        began_s = self.now_s
        while not self.look(moved=False, late_s=late_s):
            pass
        return self.now_s - began_s


@pytest.mark.parametrize("timeout_s", [0.4, 2.0, 30.0, 600.0])
@pytest.mark.parametrize("late_s", [0.0, 0.01])
def test_a_stall_shows_within_the_time_out_and_half_a_second(
    timeout_s: float, late_s: float
) -> None:
    looks = Looks(timeout_s)
    assert not any(looks.look(moved=True) for _ in range(50))
    assert timeout_s <= looks.quiet_s(late_s) + 1e-6 < timeout_s + 0.5


def test_an_observer_that_was_held_up_finds_no_stall() -> None:
    looks = Looks(timeout_s=30.0)
    assert not any(looks.look(moved=False, late_s=3600.0) for _ in range(50))
    assert looks.quiet_s() > 4.0, "it has looked for 25 s"
    assert not looks.look(moved=True, late_s=3600.0)
    assert looks.quiet_s() >= 30.0


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("bad\nworse"), "ValueError: bad"),
        (StartupError("no such model"), "no such model"),
        (MemoryError("4 GB wanted"), "4 GB wanted"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_an_error_is_said_in_one_line(error: Exception, line: str) -> None:
    assert one_line(error) == line


def test_the_engine_side_needs_no_torch_for_the_toy() -> None:
    code = """
import sys
from service.build import build
from service.settings import Model, Settings
build(Settings(model=Model(source="toy")))
sys.exit("torch" in sys.modules)
"""
    root = Path(__file__).parent.parent
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)
