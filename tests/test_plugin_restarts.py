"""Restarts of the engine whose strategy cannot be made again, or struck out before."""

import os
import signal
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from schedulers.registry import BUILT_IN
from service.build import build
from service.chosen import ChosenScheduler
from service.engine_process import Built
from service.messages import SchedulerSet, SetScheduler
from service.settings import SchedulerChoice, Settings
from service.supervisor import StartupError
from tests.cores import make_submit
from tests.engine_builds import touchy
from tests.test_supervisor import (
    EXITS,
    Front,
    asked,
    engine_pid,
    planner,
    serves,
    supervised,
    toy_settings,
    until,
)

pytestmark = pytest.mark.alone
FICKLE = "tests.fickle:Fickle"
COUNTED = "tests.misbehaving:Counted"
RAISES = "tests.misbehaving:Raises"
STALL_S = 0.4
LOAD_S = 1.0


def slow_to_load(settings: Settings) -> Built:
    time.sleep(LOAD_S)
    return touchy(settings)


@pytest.mark.parametrize("mood", ["gone", "refuses", "hangs", "exits"])
async def test_a_restart_whose_plug_in_cannot_be_made_any_more_goes_on_with_fcfs(
    mood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    front = Front()
    settings = toy_settings(stall_timeout_s=STALL_S)
    async with supervised(front, build, settings) as (supervisor, _):
        told = await asked(supervisor, front, SetScheduler(1, FICKLE))
        assert told == SchedulerSet(1, 1)
        monkeypatch.setenv("FICKLE", mood)
        os.kill(engine_pid(), signal.SIGKILL)
        await until(lambda: len(front.ready) == 2)
        assert front.ready[1].generation == 3, "one start failed, no more"
        assert await planner(supervisor, front, 2) == ("fcfs", FICKLE)
        await serves(supervisor, front, 1)


async def test_the_first_start_does_not_wait_for_a_plug_in_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FICKLE", "hangs")
    with pytest.raises(StartupError, match=f"{FICKLE}' was not made in 0.4 s"):
        async with supervised(Front(), build, toy_settings(FICKLE, stall_timeout_s=STALL_S)):
            pass


async def test_a_model_may_take_longer_to_load_than_a_step_to_stall() -> None:
    front = Front()
    async with supervised(front, slow_to_load, stall_timeout_s=LOAD_S / 4) as (supervisor, _):
        await serves(supervisor, front, 1)


async def test_an_idle_engine_that_hangs_in_an_exchange_comes_back_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FICKLE", "hangs")
    front = Front()
    settings = toy_settings("static", stall_timeout_s=STALL_S)
    async with supervised(front, build, settings) as (supervisor, _):
        supervisor.send(SetScheduler(1, FICKLE))
        await until(lambda: front.down)
        assert "no step for 0.4 s" in front.down[0][1]
        await until(lambda: len(front.ready) == 2)
        assert await planner(supervisor, front, 2) == ("static", "")
        await serves(supervisor, front, 1)
        assert front.answers.keys() == {2}


async def test_fcfs_that_stands_in_after_three_strikes_still_does_after_a_restart() -> None:
    front = Front()
    async with supervised(front, build, toy_settings(RAISES)) as (supervisor, _):
        await serves(supervisor, front, 1)
        assert await planner(supervisor, front, 1) == ("fcfs", RAISES)
        os.kill(engine_pid(), signal.SIGKILL)
        await until(lambda: len(front.ready) == 2)
        assert front.ready[1].scheduler == "fcfs"
        assert await planner(supervisor, front, 2) == ("fcfs", RAISES)
        assert await asked(supervisor, front, SetScheduler(3, "static")) == SchedulerSet(2, 3)
        assert await planner(supervisor, front, 4) == ("static", "")


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_strategy_is_never_blamed_for_the_end_of_an_engine(name: str) -> None:
    chosen = ChosenScheduler(SchedulerChoice(name=name))
    chosen.engine_gone(0)
    assert (chosen.choice.name, chosen.replaces) == (name, "")


def test_a_plug_in_is_not_blamed_for_an_end_while_it_did_nothing() -> None:
    chosen = ChosenScheduler(SchedulerChoice(name=FICKLE))
    chosen.engine_gone(None)
    assert (chosen.choice.name, chosen.replaces) == (FICKLE, "")


@pytest.mark.parametrize(("suspect", "replaces"), [(0, FICKLE), (1, FICKLE), (2, "")])
def test_of_two_strategies_the_one_that_was_at_work_is_blamed(
    suspect: int, replaces: str
) -> None:
    chosen = ChosenScheduler(SchedulerChoice(name=FICKLE))
    chosen.asked(SetScheduler(1, FICKLE))
    chosen.answered(SchedulerSet(1, 1))
    chosen.asked(SetScheduler(2, RAISES))
    with capture_logs() as logs:
        chosen.engine_gone(suspect)
    assert chosen.replaces == replaces
    assert logs[0]["scheduler"] == (replaces or RAISES)


async def test_a_strategy_that_ends_the_engine_before_it_is_told_leaves_the_one_before() -> (
    None
):
    front = Front()
    settings = toy_settings(FICKLE, stall_timeout_s=STALL_S)
    async with supervised(front, build, settings) as (supervisor, _):
        supervisor._engine._on_news = lambda news: None  # what is said is lost
        supervisor.send(SetScheduler(1, EXITS))
        supervisor.send(make_submit(1, tenant="trouble"))
        await until(lambda: len(front.ready) == 2)
        assert await planner(supervisor, front, 2) == (FICKLE, "")


async def test_a_strategy_is_made_once_at_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MADE", str(tmp_path / "made"))
    front = Front()
    async with supervised(front, build, toy_settings(COUNTED)) as (supervisor, _):
        assert front.ready[0].scheduler == COUNTED
        assert await planner(supervisor, front, 1) == (COUNTED, "")
    assert (tmp_path / "made").read_text() == "."
