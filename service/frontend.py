"""The service but for its process: listener, engine and what lies between, put together."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from importlib.metadata import version

import structlog

from models.errors import ModelError
from models.tokenizer import Tokenizer
from protos.walkway.v1.inference_pb2_grpc import add_InferenceServiceServicer_to_server
from service.admission import Admission
from service.daemon import in_daemon_thread
from service.engine_process import Build
from service.errors import Unavailable
from service.messages import End, Ready, StepEvents, Submit
from service.metrics import Metrics, MetricsServer
from service.reception import Grants, Reception
from service.records import Records
from service.requests import pool_pages
from service.server import Health, PortTaken, listen, make_server
from service.servicer import InferenceServicer
from service.settings import Settings
from service.streams import DRAIN_RETRY_S, Streams
from service.supervisor import StartupError, Supervisor
from service.tokenising import Tokenising

ENDING_S = 2.0

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
        server = settings.server
        self.metrics = Metrics()
        self.health = Health()
        self.streams = Streams(self._send)
        self.admission = Admission(server.max_waiting_requests, server.max_waiting_tokens)
        grants = Grants(server.request_timeout_s, server.queue_timeout_s)
        self.reception = Reception(self.streams, self.admission, grants, time.monotonic)
        self._supervisor = Supervisor(settings, build, self)
        self._server = make_server(server, self.health)
        self._metrics_server: MetricsServer | None = None
        self.port = 0
        self.metrics_port = 0

    async def start(self) -> None:
        """Listen, then load. Raises StartError."""
        started_s = time.monotonic()
        self._listen()
        await self._server.start()
        source = self._settings.model.source
        try:
            tokenizer = await in_daemon_thread(lambda: self._load_tokenizer(source))
            self._tokenising = Tokenising(tokenizer)
            ready = await self._supervisor.start()
        except (ModelError, StartupError) as error:
            raise StartError(str(error)) from error
        self._say_started(ready, time.monotonic() - started_s)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. Raises EngineLost when the engine is given up."""
        supervising = asyncio.create_task(self._supervisor.run())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({supervising, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not supervising.done():
                await self.drain()
        finally:
            stopping.cancel()
            supervising.cancel()
            await asyncio.wait({supervising, stopping})
        if not supervising.cancelled():
            supervising.result()

    async def drain(self) -> None:
        """Take no more calls, let those that run finish within `grace_s`, end the rest."""
        log.info("draining", open=len(self.streams))
        self.streams.drain()
        self.health.drain()
        if not await _within(self._settings.server.grace_s, self.streams.idle()):
            self.streams.fail_all(Unavailable("the server shut down", DRAIN_RETRY_S))

    async def stop(self) -> None:
        """Whatever still runs ends with a status; then listener and engine end."""
        self.streams.drain()
        self.streams.fail_all(Unavailable("the server shut down", DRAIN_RETRY_S))
        await _within(ENDING_S, self.streams.idle())
        await self._server.stop(ENDING_S)
        await self._supervisor.stop()
        if self._tokenising:
            self._tokenising.close()
        if self._metrics_server:
            await asyncio.to_thread(self._metrics_server.stop)

    def on_ready(self, ready: Ready) -> None:
        """The engine serves."""
        assert self._tokenising, "the tokenizer is loaded before the engine starts"
        self.reception.learn(ready, self._tokenising)
        self.metrics.up(ready.generation, pool_pages(ready))
        self.health.show(True)

    def on_events(self, events: StepEvents) -> None:
        """A step's news."""
        self.metrics.step(events.stats)
        self.streams.deliver(events)

    def on_down(self, why: str) -> None:
        """The engine is gone."""
        self.health.show(False)
        self.metrics.down()
        self.reception.lose(self._supervisor.retry_after_s)
        retry_s = self._supervisor.retry_after_s()
        self.streams.fail_all(Unavailable(f"the engine went down: {why}", retry_s))

    def _send(self, command: Submit | End) -> None:
        self._supervisor.send(command)

    def _listen(self) -> None:
        server, metrics = self._settings.server, self._settings.metrics
        servicer = InferenceServicer(
            self.reception,
            Records(self.metrics),
            server.max_message_bytes,
            version("walkway"),
        )
        add_InferenceServiceServicer_to_server(servicer, self._server)  # type: ignore[no-untyped-call]
        try:
            self.port = listen(self._server, server.host, server.port)
        except PortTaken as error:
            raise StartError(f"server.port: {error}") from error
        if not metrics.enabled:
            return
        try:
            self._metrics_server = MetricsServer(self.metrics, metrics.host, metrics.port)
        except OSError as error:
            where = f"{metrics.host}:{metrics.port}"
            raise StartError(
                f"metrics.port: cannot listen on {where}: {error.strerror}"
            ) from error
        self.metrics_port = self._metrics_server.port

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
            port=self.port,
            metrics_port=self.metrics_port or None,
            start_s=round(took_s, 2),
        )


async def _within(limit_s: float, work: Coroutine[None, None, None]) -> bool:
    try:
        await asyncio.wait_for(work, limit_s)
    except TimeoutError:
        return False
    return True
