"""Every address that the service listens on: inference, its operators, Prometheus."""

import asyncio
from collections.abc import Callable, Mapping

import grpc.aio

from protos.walkway.v1.admin_pb2_grpc import add_AdminServiceServicer_to_server
from protos.walkway.v1.inference_pb2_grpc import add_InferenceServiceServicer_to_server
from service.admin import AdminServicer
from service.descriptors import connections_of
from service.gate import Gate, Glance
from service.health import Health
from service.metrics import Metrics
from service.metrics.endpoint import MetricsServer
from service.metrics.rpcs import RpcWatch
from service.reading import MessageBounds
from service.records import Records
from service.server import ADMIN, SERVICE, PortTaken, listen, make_server
from service.servicer import InferenceServicer
from service.settings import Admin, Settings
from service.settings import Metrics as Exposition

OPERATORS = 64
"""Connections to the operators' port."""


LOOK_S = 1.0


class ListenerLost(Exception):
    """A listener ended by itself: nobody reaches the service any more, so it has to end."""


class Listeners:
    """`open` and `start`, `stop` in the end. What is not enabled has port 0."""

    def __init__(
        self,
        settings: Settings,
        glances: Mapping[str, Glance],
        retry_after_s: Callable[[], float],
        records: Records,
    ) -> None:
        self._settings = settings
        self._glances = glances
        self._retry_after_s = retry_after_s
        self._records = records
        self._healths: list[Health] = []
        self._servers: list[grpc.aio.Server] = []
        self._exposition: MetricsServer | None = None
        self.port = 0
        self.admin_port = 0
        self.metrics_port = 0

    def open(
        self, inference: InferenceServicer, admin: AdminServicer, metrics: Metrics
    ) -> None:
        """Take all addresses. Raises PortTaken, which names the setting."""
        settings = self._settings
        wanted = settings.server.max_connections
        server = self._server(SERVICE, connections_of(wanted), metrics)
        add_InferenceServiceServicer_to_server(inference, server)  # type: ignore[no-untyped-call]
        self.port = _open(server, "server", settings.server.host, settings.server.port)
        if settings.admin.enabled:
            self._open_admin(settings.admin, admin, metrics)
        metrics.process.connections.watch({"inference": self.port, "admin": self.admin_port})
        if settings.metrics.enabled:
            self._open_metrics(settings.metrics, metrics)

    async def start(self) -> None:
        """Answer calls from now on."""
        for server in self._servers:
            await server.start()

    async def watch(self) -> None:
        """Until the listeners are stopped or one is lost. gRPC's end by themselves after an
        error of their own, and say so only to who asks. Raises ListenerLost."""
        look_s = LOOK_S / len(self._servers)
        try:
            while all([await server.wait_for_termination(look_s) for server in self._servers]):
                pass  # True: the time was over, and the server is not
        except Exception as error:
            raise ListenerLost(f"a listener was lost: {error!r}") from error

    def show(self, serving: bool) -> None:
        """What health says, at each address."""
        for health in self._healths:
            health.show(serving)

    def drain(self) -> None:
        """Health says NOT_SERVING from now on, but that the process lives."""
        for health in self._healths:
            health.drain()

    async def stop(self, grace_s: float) -> None:
        """Calls that still run may finish within the grace; those that watch health end."""
        for health in self._healths:
            health.end()
        await asyncio.gather(*(server.stop(grace_s) for server in self._servers))
        if self._exposition:
            await asyncio.to_thread(self._exposition.stop)

    def _server(self, service: str, connections: int, metrics: Metrics) -> grpc.aio.Server:
        health = Health(service)
        self._healths.append(health)
        interceptors = [RpcWatch(metrics.rpcs), self._gate()]  # the first sees what others do
        server = make_server(self._settings.server, service, health, connections, interceptors)
        self._servers.append(server)
        return server

    def _gate(self) -> Gate:
        server = self._settings.server
        bounds = MessageBounds(server.max_message_bytes, server.request_timeout_s)
        return Gate(
            server.max_concurrent_calls,
            bounds,
            self._glances,
            self._retry_after_s,
            self._records,
        )

    def _open_admin(self, settings: Admin, servicer: AdminServicer, metrics: Metrics) -> None:
        server = self._server(ADMIN, OPERATORS, metrics)
        add_AdminServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
        self.admin_port = _open(server, "admin", settings.host, settings.port)

    def _open_metrics(self, settings: Exposition, metrics: Metrics) -> None:
        host, port = settings.host, settings.port
        try:
            self._exposition = MetricsServer(metrics, host, port)
        except OSError as error:
            line = f"metrics.port: cannot listen on {host}:{port}: {error.strerror}"
            raise PortTaken(line) from error
        self.metrics_port = self._exposition.port


def _open(server: grpc.aio.Server, group: str, host: str, port: int) -> int:
    try:
        return listen(server, host, port)
    except PortTaken as error:
        raise PortTaken(f"{group}.port: {error}") from error
