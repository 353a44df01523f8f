"""The service but for its process: listener, engine and what lies between, put together."""

import asyncio
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import structlog

from models.errors import ModelError
from models.tokenizer import Tokenizer
from service.admin import AdminServicer
from service.admission import Admission
from service.daemon import in_daemon_thread
from service.desk import Desk
from service.engine_process import Build
from service.errors import Unavailable
from service.leaving import Leaving
from service.listeners import Listeners
from service.messages import (
    End,
    Inspect,
    Inspected,
    Ready,
    SchedulerSet,
    SetScheduler,
    StepEvents,
    StepStats,
    Submit,
)
from service.metrics import Metrics
from service.reception import Grants, Reception
from service.records import Records
from service.requests import pool_pages, with_end_tokens
from service.server import GENERATING, PortTaken
from service.servicer import InferenceServicer
from service.settings import Server, Settings
from service.statistics import Statistics
from service.streams import DRAIN_RETRY_S, Streams
from service.supervisor import EngineLost, StartupError, Supervisor
from service.token_queries import TokenQueries
from service.tokenising import Tokenising
from service.whole import MessageLimits

ENDING_S = 2.0
LAST_WORDS_S = 1.0

LoadTokenizer = Callable[[str], Tokenizer]

log = structlog.get_logger()


class StartError(Exception):
    """The service cannot start; one line for people."""


class FrontEnd:
    """`start`, `run`, `stop`; each once, `stop` also after an error of the others."""

    def __init__(self, settings: Settings, build: Build, load: LoadTokenizer) -> None:
        self._settings = settings
        self._load_tokenizer = load
        self._tokenising: Tokenising | None = None
        self._queries: Tokenising | None = None
        server = settings.server
        self.leaving = Leaving()
        self.metrics = Metrics(settings.model.source)
        self.statistics = Statistics(time.monotonic)
        self.streams = Streams(self._send, server.max_unread_bytes)
        self.desk = Desk(self._send, self._exchanged)
        self.admission = _admission(server)
        self.metrics.watch_queue(self.admission)
        self._watching_lag: asyncio.Task[None] | None = None
        grants = Grants(server.request_timeout_s, server.queue_timeout_s)
        self.reception = Reception(self.streams, self.admission, grants, time.monotonic)
        self._supervisor = Supervisor(settings, build, self)
        self._admin = AdminServicer(
            self.desk, self.statistics, self.streams.request_id_of, self.reception.served
        )
        self._records = Records(self.metrics.requests)
        glances = dict.fromkeys(GENERATING, self.reception.glance)
        self.listeners = Listeners(
            settings, glances, self.admission.retry_after_s, self._records
        )

    async def start(self) -> None:
        """Listen, then load. Raises StartError."""
        started_s = time.monotonic()
        self._listen()
        self._watching_lag = asyncio.create_task(self.metrics.process.watch_lag())
        await self.listeners.start()
        source = self._settings.model.source
        try:
            tokenizer = await in_daemon_thread(lambda: self._load_tokenizer(source))
            self._tokenising, self._queries = Tokenising(tokenizer), Tokenising(tokenizer)
            ready = await self._supervisor.start()
        except (ModelError, StartupError) as error:
            raise StartError(str(error)) from error
        _say_loaded(ready, tokenizer)
        self._say_started(ready, time.monotonic() - started_s)

    async def run(self) -> None:
        """Until `leaving` is asked, then drain. Raises EngineLost and ListenerLost when either
        is given up before."""
        supervising = asyncio.create_task(self._supervisor.run())
        stopping = asyncio.create_task(self.leaving.asked.wait())
        listening = asyncio.create_task(self.listeners.watch())
        tasks = {supervising, stopping, listening}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                listening.result()
            if not supervising.done():
                await self._step_back(supervising)
                await self.drain()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if supervising.cancelled():
            return
        error = supervising.exception()
        if isinstance(error, EngineLost) and self.leaving.asked.is_set():
            log.warning("engine_lost_while_draining", why=str(error))
        elif error is not None:
            raise error

    async def _step_back(self, supervising: asyncio.Task[None]) -> None:
        """Health turns at once; calls are served until load balancers have noticed."""
        self.listeners.drain()
        delay_s = self._settings.server.drain_delay_s if self.leaving.patiently else 0.0
        log.info("leaving", open=len(self.streams), delay_s=delay_s)
        await self.leaving.within(delay_s, asyncio.wait({supervising}))

    async def drain(self) -> None:
        """Take no more calls, let those that run finish within `grace_s`, end the rest."""
        log.info("draining", open=len(self.streams))
        self.streams.drain()
        self.listeners.drain()
        self._admin.drain()
        if not await self.leaving.within(self._settings.server.grace_s, self.streams.idle()):
            self.streams.fail_all(Unavailable("the server shut down", DRAIN_RETRY_S))

    async def stop(self) -> None:
        """Whatever still runs ends with a status; then listener and engine end."""
        self.streams.drain()
        self._admin.drain()
        self.streams.fail_all(Unavailable("the server shut down", DRAIN_RETRY_S))
        await self.leaving.within(ENDING_S, self.streams.idle())
        await self.listeners.stop(LAST_WORDS_S)
        await self._stop_engine()
        if self._watching_lag:
            self._watching_lag.cancel()
        for tokenising in (self._tokenising, self._queries):
            if tokenising:
                tokenising.close()

    async def _stop_engine(self) -> None:
        stopping = asyncio.create_task(self._supervisor.stop())
        if not await self.leaving.within(None, asyncio.wait({stopping})):
            self._supervisor.kill()
        await stopping

    def in_force(self) -> tuple[str, dict[str, Any]]:
        """Name and options of the strategy that plans now."""
        name, choice = self.statistics.scheduler, self._supervisor.choice
        return name, choice.options if choice.name == name else {}

    def on_ready(self, ready: Ready) -> None:
        """The engine serves."""
        assert self._tokenising and self._queries, "loaded before the engine starts"
        self.reception.learn(ready, self._tokenising, self._queries)
        self.metrics.up(ready)
        self.statistics.step(StepStats(free_pages=pool_pages(ready)))
        self._name_scheduler(ready.scheduler)
        self.listeners.show(True)

    def on_events(self, events: StepEvents) -> None:
        """A step's news."""
        self.metrics.heard(events)
        self.statistics.step(events.stats)
        if events.stats.scheduler != self.statistics.scheduler:  # FCFS may stand in
            self._name_scheduler(events.stats.scheduler)
        self.streams.deliver(events)

    def on_answer(self, answer: SchedulerSet | Inspected) -> None:
        """What somebody asked of the engine."""
        self.desk.answer(answer)

    def on_down(self, why: str) -> None:
        """The engine is gone."""
        self.listeners.show(False)
        self.metrics.down()
        self.statistics.step(StepStats())
        self.reception.lose(self._supervisor.retry_after_s)
        retry_s = self._supervisor.retry_after_s()
        gone = Unavailable(f"the engine went down: {why}", retry_s)
        self.streams.fail_all(gone)
        self.desk.fail_all(gone)

    def _send(self, command: Submit | End | SetScheduler | Inspect) -> None:
        self._supervisor.send(command)

    def _exchanged(self, choice: SetScheduler) -> None:
        log.info("scheduler_exchanged", scheduler=choice.name, options=choice.options)
        self._name_scheduler(choice.name)

    def _name_scheduler(self, name: str) -> None:
        self.reception.rename_scheduler(name)
        self.metrics.engine.scheduler(name)
        self.statistics.scheduler = name

    def _listen(self) -> None:
        server = self._settings.server
        inference = InferenceServicer(
            self.reception,
            TokenQueries(_admission(server), server.max_message_bytes),
            self._records,
            MessageLimits(server.max_message_bytes, server.max_stream_message_bytes),
            version("walkway"),
        )
        try:
            self.listeners.open(inference, self._admin, self.metrics)
        except PortTaken as error:
            raise StartError(str(error)) from error

    def _say_started(self, ready: Ready, took_s: float) -> None:
        log.info(
            "serving",
            model=ready.model,
            dtype=ready.dtype,
            attention=ready.attention,
            attention_why=ready.attention_why,
            scheduler=ready.scheduler,
            kv_pages=ready.num_pages - 1,
            page_size=ready.page_size,
            context_tokens=ready.context_tokens,
            port=self.listeners.port,
            admin_port=self.listeners.admin_port or None,
            metrics_port=self.listeners.metrics_port or None,
            start_s=round(took_s, 2),
        )


def _say_loaded(ready: Ready, tokenizer: Tokenizer) -> None:
    """What the model's files were taken for."""
    log.info(
        "model_loaded",
        family=ready.family,
        tensors=ready.tensors,
        unused_tensors=len(ready.unused_tensors),
        head=ready.head,
        rope=ready.rope,
        window=ready.window,
        tokenizer=tokenizer.rule,
        end_tokens=with_end_tokens(ready, tokenizer.eos_ids).eos_ids,
    )
    if ready.unused_tensors:
        log.warning("tensors_not_used", names=ready.unused_tensors)


def _admission(server: Server) -> Admission:
    return Admission(
        server.max_waiting_requests, server.max_waiting_tokens, server.max_waiting_bytes
    )
