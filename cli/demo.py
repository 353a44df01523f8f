"""The service started, asked once and stopped: what `make demo` shows."""

import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from rich.console import Console

from cli.asking import Wishes, open_channel
from cli.dialogue import ask_once
from cli.failures import describe
from models.errors import ModelError

START_S = 120.0
STOP_S = 15.0
POLL_S = 0.1


class DemoError(Exception):
    """The demo cannot go on; one line for people."""


def run_demo(model: str, prompt: str, max_tokens: int) -> int:
    """Exit code: 0 when an answer came."""
    console = Console(stderr=True, highlight=False)
    target = ""
    try:
        _fetch(model)
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "walkway.log"
            with _service(model, log, console) as target:
                console.print(prompt, style="bold", markup=False)
                ask_once(target, None, prompt, Wishes(max_tokens, temperature=0.0))
    except (DemoError, ModelError) as error:
        print(f"walkway: {error}", file=sys.stderr)
        return 1
    except grpc.RpcError as error:
        print(f"walkway: {describe(error, target)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _fetch(model: str) -> None:
    # Here and not in the service, so that its progress is seen.
    if model == "default":
        from models.fetch import default_model

        default_model()


@contextmanager
def _service(model: str, log: Path, console: Console) -> Iterator[str]:
    """A service of its own for as long as the context lasts; its target."""
    target = f"127.0.0.1:{_free_port()}"
    settings = (
        f"server.port={target.rpartition(':')[2]}",
        "server.drain_delay_s=0",
        "server.grace_s=0",
        "metrics.enabled=false",
        "admin.enabled=false",
        f"model.source={model}",
        "memory.pool_bytes=268435456",
        "log.format=json",
    )
    command = [sys.executable, "-P", "-m", "cli.main", "serve"]
    for setting in settings:
        command += ["--set", setting]
    with log.open("wb") as output, subprocess.Popen(command, stderr=output) as process:
        told = threading.Event()

        def leave(number: int, frame: FrameType | None) -> None:
            # Raises nothing, which whoever runs at that moment might swallow: without its
            # service the demo ends by itself.
            told.set()
            process.terminate()

        signal.signal(signal.SIGTERM, leave)
        try:
            with console.status("starting the service"):
                started_s = _wait_until_serving(process, target, log)
            console.print(f"serving at {target} after {started_s:.1f} s", style="dim")
            yield target
        except (DemoError, grpc.RpcError) as error:
            if told.is_set():
                raise DemoError("stopped by SIGTERM") from error
            raise
        finally:
            _stop(process)


def _wait_until_serving(process: "subprocess.Popen[bytes]", target: str, log: Path) -> float:
    """Seconds it took. Raises DemoError when the service ends or takes too long."""
    start_s = time.monotonic()
    with open_channel(target) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        while time.monotonic() - start_s < START_S:
            if process.poll() is not None:
                raise DemoError(f"the service did not start: {_last_line(log)}")
            if _serves(health):
                return time.monotonic() - start_s
            time.sleep(POLL_S)
    raise DemoError(f"the service does not serve after {START_S:.0f} s: {_last_line(log)}")


def _serves(health: health_pb2_grpc.HealthStub) -> bool:
    try:
        answer = health.Check(health_pb2.HealthCheckRequest(), timeout=1.0)
    except grpc.RpcError:
        return False  # not listening yet
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("walkway: ") if lines else "it said nothing"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
