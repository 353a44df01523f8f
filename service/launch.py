"""One generation of the engine as the front end holds it: started, heard, sent to, ended."""

import asyncio
import atexit
import multiprocessing
import multiprocessing.resource_tracker
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import structlog

from service.channel import Context, FrontSocket, Told
from service.engine_process import EngineSpec, process_main, run_engine
from service.messages import (
    Event,
    Failed,
    Inspected,
    Ping,
    Ready,
    SchedulerSet,
    StepEvents,
    Stop,
)
from service.stalls import StallWatch

KILL_S = 5.0
FRONT_ENDS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}

News = StepEvents | SchedulerSet | Inspected

log = structlog.get_logger()


class StartupError(Exception):
    """The engine could not start; one line for people."""


class NoDescriptors(StartupError):
    """None was left to start an engine with, which is no fault of the engine."""


class Body(Protocol):
    """What an engine runs in. `gone` is called on the event loop, once, with why."""

    killable: bool

    def start(self, spec: EngineSpec, gone: Callable[[str], None]) -> None: ...

    def kill(self) -> None: ...


class ProcessBody:
    """A process of its own: spawned, never forked, because gRPC's threads do not survive a
    fork."""

    killable = True

    def start(self, spec: EngineSpec, gone: Callable[[str], None]) -> None:
        process = multiprocessing.get_context("spawn").Process(
            target=process_main, args=(spec,), name=f"walkway-engine-{spec.generation}"
        )
        self._process = process
        _start_deaf(process)
        # A front end that crashes would otherwise wait at its exit for an engine that waits
        # for that exit; this runs before multiprocessing's own handler, which waits.
        atexit.register(process.kill)
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(process.sentinel)
            process.join()
            atexit.unregister(process.kill)
            gone(_cause(process.exitcode))

        loop.add_reader(process.sentinel, ended)

    def kill(self) -> None:
        self._process.kill()


class ThreadBody:
    """A thread of this process, for tests and debugging. Nothing can kill a thread: one that
    hangs stays until the process ends."""

    killable = False

    def start(self, spec: EngineSpec, gone: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()

        def body() -> None:
            try:
                run_engine(spec)
            finally:
                with suppress(RuntimeError):  # the event loop ended before
                    loop.call_soon_threadsafe(gone, "the engine's thread ended")

        threading.Thread(target=body, name="walkway-engine", daemon=True).start()

    def kill(self) -> None: ...


def _start_deaf(process: multiprocessing.process.BaseProcess) -> None:
    """Start with signals blocked that the front end answers, which the child inherits: one
    for the whole group must reach the front end alone, which drains or reloads."""
    multiprocessing.resource_tracker.ensure_running()  # else `start` does it and unblocks
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FRONT_ENDS)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _cause(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"the engine process was ended by {signal.Signals(-exitcode).name}"
    return f"the engine process exited with code {exitcode}"


class Engine:
    """One generation, starting from the moment this is made.

    `ended` resolves with why, for whichever cause comes first: the body is gone, the engine
    said that it failed, or somebody condemned it. From then on nothing is heard of it.
    `suspect` is the strategy that is at work, or was when it died.
    """

    def __init__(
        self, context: Context, spec: EngineSpec, on_news: Callable[[News], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = loop.create_future()
        self._stepped = self._spoke = False
        self._ready: asyncio.Future[Ready] = loop.create_future()
        self._exited = asyncio.Event()
        self._on_news = on_news
        self.suspect = spec.suspect
        self._scheduler = spec.settings.scheduler.name
        self._generation = spec.generation
        self._channel = FrontSocket(context, spec.address, self._hear)
        inline = spec.settings.engine.isolation == "inline"
        self._body: Body = ThreadBody() if inline else ProcessBody()
        try:
            self._body.start(spec, self._gone)
        except OSError:
            self._channel.close()
            raise

    async def ready(self, making_s: float) -> Ready:
        """Wait until it serves, however long the model takes to load; only its strategy has
        to be made within `making_s`. Raises StartupError when it ended instead."""
        waits: set[asyncio.Future[Ready] | asyncio.Future[str]] = {self._ready, self.ended}
        watch = StallWatch(making_s)
        while not (self._ready.done() or self.ended.done()):
            await asyncio.wait(waits, timeout=watch.look_s, return_when=asyncio.FIRST_COMPLETED)
            if watch.look(moved=not self.suspect.value):
                self.condemn(f"scheduler {self._scheduler!r} was not made in {making_s:g} s")
        if self.ended.done():
            raise StartupError(self.ended.result())
        return self._ready.result()

    def send(self, command: Told) -> None:
        """Never blocks. Raises ConnectionError when the engine is gone."""
        if self.ended.done():
            raise ConnectionError(self.ended.result())
        self._channel.send(command)

    def ping(self) -> None:
        """Let it say that it is there. One that is gone is noticed elsewhere."""
        with suppress(ConnectionError):
            self.send(Ping())

    def moved(self, has_work: bool) -> bool:
        """Whether it did something since this was last asked: a step while it has work, else
        any word. A loop that answers and computes nothing for those who wait is stuck."""
        moved = self._stepped or (self._spoke and not has_work)
        self._stepped = self._spoke = False
        return moved

    def condemn(self, why: str) -> None:
        """Count it as ended, whatever it still does."""
        if not self.ended.done():
            self.ended.set_result(why)

    def kill(self) -> None:
        """End it now; a thread cannot be."""
        self._body.kill()

    async def retire(self, grace_s: float) -> None:
        """Ask it to stop, kill it when it has not within `grace_s`, and clean up."""
        with suppress(ConnectionError):  # it ended by itself
            self._channel.send(Stop())
        gone = await self._exits_within(grace_s)
        if not gone and self._body.killable:
            self._body.kill()
            gone = await self._exits_within(KILL_S)
        if not gone:
            log.error("engine_cannot_be_ended", generation=self._generation)
        self.condemn("it was stopped")
        self._channel.close()

    async def _exits_within(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._exited.wait()
        except TimeoutError:
            return False
        return True

    def _hear(self, event: Event) -> None:
        if event.generation != self._generation or self.ended.done():
            return
        match event:
            case Ready():
                self._ready.set_result(event)
            case Failed():
                self.condemn(event.message)
            case _:
                self._spoke = True
                if isinstance(event, StepEvents) and (event.events or event.stats.steps):
                    self._stepped = True
                self._on_news(event)

    def _gone(self, why: str) -> None:
        self._channel.drain()  # what it said before is heard first
        self.condemn(why)
        self._exited.set()
