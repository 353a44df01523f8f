"""A service of our own to measure: a process on free ports, up until the block ends."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from service.healthcheck import health

START_S = 180.0
STOP_S = 60.0
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Running:
    """Where it listens."""

    target: str
    metrics_url: str


@contextmanager
def service(settings: Sequence[str]) -> Iterator[Running]:
    """Start `walkway serve` with `group.field=value` settings, wait until it is healthy, and
    stop it in the end. Raises RuntimeError when it does not come up."""
    port, metrics_port = free_ports(2)
    ports = (f"server.port={port}", f"metrics.port={metrics_port}", "admin.port=0")
    chosen = ("server.drain_delay_s=0", *settings, *ports)
    command = [sys.executable, "-m", "cli.main", "serve"]
    for setting in chosen:
        command += ["--set", setting]
    with subprocess.Popen(command, stdout=sys.stderr) as process:
        try:
            target = f"127.0.0.1:{port}"
            _await_health(process, target)
            yield Running(target, f"http://127.0.0.1:{metrics_port}/metrics")
        finally:
            _stop(process)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _await_health(process: "subprocess.Popen[bytes]", target: str) -> None:
    give_up_s = time.monotonic() + START_S
    while health(target) != "SERVING":
        if process.poll() is not None:
            raise RuntimeError(f"the service ended with code {process.returncode}")
        if time.monotonic() > give_up_s:
            raise RuntimeError(f"the service is not healthy after {START_S:.0f} s")
        time.sleep(POLL_S)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
