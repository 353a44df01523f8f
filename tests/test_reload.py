"""What a SIGHUP changes, and what it does not."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from service.config import ConfigError
from service.desk import Rejected
from service.errors import Unavailable
from service.reload import Reload
from service.settings import Settings


class Operator:
    """Edits the configuration and reloads it; the engine takes every strategy but "bad"."""

    def __init__(self) -> None:
        self.config: Settings | Exception = Settings()
        self.exchanged: list[tuple[str, dict[str, Any]]] = []
        self.refusal: Exception = Rejected("scheduler 'bad' is unknown")
        self.planning: tuple[str, dict[str, Any]] = ("fcfs", {})
        self.reload = Reload(Settings(), self._reread, self._exchange, lambda: self.planning)

    def _reread(self) -> Settings:
        if isinstance(self.config, Exception):
            raise self.config
        return self.config

    async def _exchange(self, name: str, options: dict[str, Any]) -> None:
        if name == "bad":
            raise self.refusal
        self.planning = name, options
        self.exchanged.append(self.planning)

    async def edits(self, **groups: dict[str, Any]) -> Sequence[Any]:
        self.config = Settings(**groups)
        return await self.reloads()

    async def reloads(self) -> Sequence[Any]:
        with capture_logs() as logs:
            await self.reload.reload()
        return logs


async def test_a_scheduler_group_that_changed_is_exchanged_once() -> None:
    operator = Operator()
    chosen = {"name": "priority", "options": {"aged_share": 0.3}}
    await operator.edits(scheduler=chosen)
    await operator.edits(scheduler=chosen)
    assert operator.exchanged == [("priority", {"aged_share": 0.3})]
    await operator.edits()
    assert operator.exchanged[1:] == [("fcfs", {})]


async def test_what_another_put_in_place_gives_way_to_the_configuration() -> None:
    """By an admin call, say, or FCFS that stands in for a strategy that failed."""
    operator = Operator()
    operator.planning = ("fair", {})
    await operator.reloads()
    assert operator.exchanged == [("fcfs", {})]


async def test_a_configuration_that_did_not_change_exchanges_nothing() -> None:
    operator = Operator()
    (line,) = await operator.reloads()
    assert (line["event"], line["scheduler_changed"]) == ("reloaded", False)
    assert operator.exchanged == []


@pytest.mark.parametrize(
    "trouble",
    [
        ConfigError("setting server.prot: unknown"),
        Rejected("scheduler 'bad' is unknown"),
        Unavailable("the engine is down", 1.0),
        RuntimeError("a bug"),
    ],
)
async def test_whatever_goes_wrong_is_one_line_and_changes_nothing(trouble: Exception) -> None:
    operator = Operator()
    if isinstance(trouble, ConfigError):
        operator.config = trouble
        (line,) = await operator.reloads()
    else:
        operator.refusal = trouble
        (line,) = await operator.edits(scheduler={"name": "bad"}, server={"port": 1})
    assert (line["event"], line["log_level"]) == ("reload_failed", "error")
    await operator.edits(scheduler={"name": "static"})
    assert operator.exchanged == [("static", {})]
    await operator.edits()
    assert operator.exchanged[1:] == [("fcfs", {})]


async def test_what_needs_a_restart_is_named_each_time_until_it_is_undone() -> None:
    operator = Operator()
    change: dict[str, Any] = {"server": {"port": 1, "grace_s": 3.0}, "log": {"level": "debug"}}
    for _ in range(2):
        _, warning = await operator.edits(**change, scheduler={"name": "static"})
        assert warning["log_level"] == "warning"
        assert warning["changed"] == ["server.port", "server.grace_s", "log.level"]
    assert len(await operator.edits(scheduler={"name": "static"})) == 1


async def grown_to(count: int, logs: Sequence[Any]) -> None:
    until_s = time.monotonic() + 5
    while len(logs) < count:
        assert time.monotonic() < until_s, "waited in vain"
        await asyncio.sleep(0.001)


async def test_signals_that_come_together_reload_once() -> None:
    operator = Operator()
    operator.config = Settings(scheduler={"name": "static"})
    running = asyncio.create_task(operator.reload.run())
    with capture_logs() as logs:
        for _ in range(5):
            operator.reload.ask()
        await grown_to(1, logs)
        operator.reload.ask()
        await grown_to(2, logs)
    assert [line["scheduler_changed"] for line in logs] == [True, False]
    running.cancel()
