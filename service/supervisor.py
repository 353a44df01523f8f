"""Keeps one engine alive: starts it, hears it, notices that it died or hangs, ends it and
starts the next generation. Everything runs on the event loop that called `start`."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Protocol

import structlog
import zmq

from service.channel import Context
from service.chosen import ChosenScheduler
from service.descriptors import is_want
from service.engine_process import Build, EngineSpec
from service.launch import Engine, News, NoDescriptors, StartupError
from service.messages import (
    End,
    Inspect,
    Inspected,
    Ready,
    SchedulerSet,
    SetScheduler,
    StepEvents,
    Submit,
)
from service.restarts import RestartLimits, Restarts
from service.settings import SchedulerChoice, Settings
from service.stalls import StallWatch
from service.suspect import Suspect

__all__ = ["EngineDown", "EngineListener", "EngineLost", "StartupError", "Supervisor"]

STOP_GRACE_S = 5.0
FAILED_GRACE_S = 1.0

log = structlog.get_logger()


class EngineDown(Exception):
    """No engine serves now; a caller may try again after `retry_after_s`."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"the engine is down, try again in {retry_after_s:.1f} s")
        self.retry_after_s = retry_after_s


class EngineLost(Exception):
    """The engine died too often, or cannot be restarted: the service has to end."""


class EngineListener(Protocol):
    """What the front end hears, in order, on the event loop."""

    def on_ready(self, ready: Ready) -> None:
        """A generation serves from now on."""

    def on_events(self, events: StepEvents) -> None:
        """A step's news, of the present generation."""

    def on_answer(self, answer: SchedulerSet | Inspected) -> None:
        """What the present generation was asked for."""

    def on_down(self, why: str) -> None:
        """The generation is gone with all it knew: every open stream must end now."""


class Supervisor:
    """`start`, then `run` beside the front end, then `stop`, also after either raised."""

    def __init__(
        self,
        settings: Settings,
        build: Build,
        listener: EngineListener,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._build = build
        self._listener = listener
        self._clock = clock
        engine = settings.engine
        self._restarts = Restarts(
            RestartLimits(
                engine.restart_backoff_s,
                engine.restart_backoff_max_s,
                engine.max_deaths,
                engine.death_window_s,
            )
        )
        self._chosen = ChosenScheduler(settings.scheduler)
        self._context: Context = zmq.Context()
        self._directory: str | None = None
        self._generation = 0
        self._engine: Engine | None = None
        self._ready: Ready | None = None
        self._pending: set[int] = set()
        self._retry_at_s = 0.0
        self._load_s = 0.0
        self._ready_at_s = 0.0
        self._running: asyncio.Task[None] | None = None

    @property
    def ready(self) -> Ready | None:
        """What serves now; None while nothing does."""
        return self._ready

    @property
    def choice(self) -> SchedulerChoice:
        """The strategy that was put in place last."""
        return self._chosen.choice

    @property
    def pending(self) -> int:
        """Requests that the engine was given and has not ended."""
        return len(self._pending)

    async def start(self) -> Ready:
        """The first generation. Raises StartupError when it does not come up."""
        try:
            self._directory = tempfile.mkdtemp(prefix="walkway-")
        except OSError as error:
            raise StartupError(f"no folder for a socket: {error.strerror}") from error
        return await self._launch()

    def send(self, command: Submit | End | SetScheduler | Inspect) -> None:
        """Raises EngineDown for what nobody can take. An End for an engine that is gone has
        come true already."""
        engine = self._engine
        try:
            if engine is None or self._ready is None:
                raise ConnectionError("no engine")
            engine.send(command)
        except ConnectionError:
            if isinstance(command, End):
                return
            raise EngineDown(self.retry_after_s()) from None
        if isinstance(command, Submit):
            self._pending.add(command.id)
        elif isinstance(command, SetScheduler):
            self._chosen.asked(command)

    async def run(self) -> None:
        """Supervise until `stop`. Raises EngineLost when it gives up."""
        self._running = asyncio.create_task(self._supervise())
        try:
            await asyncio.wait({self._running})
        finally:
            self._running.cancel()
        if not self._running.cancelled():
            self._running.result()

    async def stop(self) -> None:
        """End the engine and clean up. May be called at any time, and again."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        if self._engine is not None:
            await self._engine.retire(STOP_GRACE_S if self._ready else 0.0)
        self._engine = self._ready = None
        self._context.destroy()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def kill(self) -> None:
        """Besides `stop`: do not wait for the engine any longer."""
        if self._engine is not None:
            self._engine.kill()

    async def _launch(self) -> Ready:
        self._generation += 1
        address = f"ipc://{self._directory}/{self._generation}"
        try:
            suspect = Suspect()
        except OSError as error:
            if is_want(error.errno):
                raise NoDescriptors(f"cannot start an engine: {error.strerror}") from error
            raise StartupError(
                f"no memory can be shared with the engine's process: {error.strerror}: "
                f"{error.filename} (a container gets /dev/shm by --shm-size or --ipc=host)"
            ) from error
        spec = EngineSpec(
            address,
            self._generation,
            self._settings.model_copy(update={"scheduler": self._chosen.choice}),
            self._build,
            suspect,
            self._chosen.replaces,
        )
        began_s = self._clock()
        self._engine = None  # what the one before did counts once
        try:
            engine = Engine(self._context, spec, self._hear)
        except (OSError, zmq.ZMQError) as error:
            if is_want(error.errno):
                raise NoDescriptors(f"cannot start an engine: {error.strerror}") from error
            raise StartupError(f"cannot start an engine at {address}: {error}") from error
        self._engine = engine
        try:
            self._ready = await engine.ready(self._settings.engine.stall_timeout_s)
        except StartupError:
            await engine.retire(FAILED_GRACE_S)
            raise
        self._ready_at_s = self._clock()
        self._load_s = self._ready_at_s - began_s
        log.info("engine_ready", generation=self._generation, load_s=round(self._load_s, 3))
        self._listener.on_ready(self._ready)
        return self._ready

    async def _supervise(self) -> None:
        while self._engine is not None:
            why = await self._end_of(self._engine)
            served_s = self._clock() - self._ready_at_s
            log.error("engine_down", generation=self._generation, why=why)
            self._ready = None
            self._pending.clear()
            self._chosen.engine_gone(self._engine.suspect.ticket)
            self._expect_restart(self._settings.engine.restart_backoff_s)
            self._listener.on_down(why)
            await self._engine.retire(FAILED_GRACE_S)
            await self._restart(why, served_s)

    async def _end_of(self, engine: Engine) -> str:
        """Wait for the engine's end, and bring it about when it hangs. One without work is
        asked at each look, so that no caller has to find out."""
        timeout_s = self._settings.engine.stall_timeout_s
        watch = StallWatch(timeout_s)
        while not engine.ended.done():
            await asyncio.wait({engine.ended}, timeout=watch.look_s)
            has_work = bool(self._pending) or self._chosen.is_asked
            if watch.look(engine.moved(has_work)):
                did = "made no step" if has_work else "did not answer"
                engine.condemn(f"the engine {did} for {timeout_s:g} s")
            elif not has_work:
                engine.ping()
        return engine.ended.result()

    async def _restart(self, why: str, served_s: float) -> None:
        """Try until an engine serves. Raises EngineLost when that was tried enough."""
        if self._settings.engine.isolation == "inline":
            raise EngineLost(f"{why}; an inline engine is not restarted")
        died = True
        while True:
            wait_s: float | None = self._settings.engine.restart_backoff_s
            if died:
                wait_s = self._restarts.died(self._clock(), served_s)
            if wait_s is None:
                deaths = self._settings.engine.max_deaths
                raise EngineLost(f"the engine died {deaths} times, the last time: {why}")
            self._expect_restart(wait_s)
            await asyncio.sleep(wait_s)
            try:
                await self._launch()
            except StartupError as error:
                why, served_s = str(error), 0.0
                died = not isinstance(error, NoDescriptors)
                if self._engine is not None:
                    self._chosen.engine_gone(self._engine.suspect.ticket)
                log.error("engine_start_failed", generation=self._generation, why=why)
            else:
                return

    def _hear(self, news: News) -> None:
        if isinstance(news, StepEvents):
            self._pending.difference_update(e.id for e in news.events if e.finish is not None)
            self._chosen.planned_by(news.stats.scheduler)
            self._listener.on_events(news)
            return
        if isinstance(news, SchedulerSet):
            self._chosen.answered(news)
        self._listener.on_answer(news)

    def _expect_restart(self, wait_s: float) -> None:
        self._retry_at_s = self._clock() + wait_s + self._load_s

    def retry_after_s(self) -> float:
        """While nothing serves: seconds until something may."""
        soonest_s = self._settings.engine.restart_backoff_s
        return max(soonest_s, self._retry_at_s - self._clock())
