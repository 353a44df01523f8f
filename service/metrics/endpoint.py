"""Where Prometheus scrapes: `/metrics` on a port and threads of its own."""

import socket
import sys
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app

from service.metrics import Metrics

PATH = "/metrics"
METHODS = ("GET", "HEAD")
IDLE_S = 10.0


class MetricsServer:
    """Answers until `stop`. Raises OSError when the port is taken."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]

        class Server(_Server):
            address_family = family

        self._server = make_server(
            str(address[0]), port, application(metrics.exposed()), Server, _Handler
        )
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A scraper that breaks off or says nothing is none, and would be a traceback."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(WSGIRequestHandler):
    timeout = IDLE_S  # else a connection that says nothing keeps its thread

    def log_message(self, format: str, *args: object) -> None:
        """A scrape every few seconds is not worth a line."""


def application(registry: CollectorRegistry) -> WSGIApplication:
    """The registry's page at `/metrics`; 404 elsewhere, 405 for what is not a read."""
    page: WSGIApplication = make_wsgi_app(registry)

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != PATH:
            return _refusal(start, "404 Not Found", f"metrics are at {PATH}\n")
        method = environ["REQUEST_METHOD"]
        if method not in METHODS:
            allowed = ("Allow", ", ".join(METHODS))
            return _refusal(start, "405 Method Not Allowed", f"{method} is not read\n", allowed)
        if method == "GET":
            return page(environ, start)
        return _head(page, environ, start)

    return answer


def _head(
    page: WSGIApplication, environ: WSGIEnvironment, start: StartResponse
) -> Iterable[bytes]:
    """The headers that a GET would have, and nothing else."""
    told: list[tuple[str, list[tuple[str, str]]]] = []

    def note(
        status: str, headers: list[tuple[str, str]], exc_info: object = None, /
    ) -> Callable[[bytes], object]:
        told.append((status, headers))
        return lambda body: None

    body = page({**environ, "REQUEST_METHOD": "GET"}, note)
    ((status, headers),) = told
    start(status, [*headers, ("Content-Length", str(sum(map(len, body))))])
    return []


def _refusal(
    start: StartResponse, status: str, why: str, *headers: tuple[str, str]
) -> Iterable[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [why.encode()]
