"""The service as an operator meets it: settings, start, signals and exit codes."""

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import heap
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from cli.serve import serve
from memory.kernels import library
from models.toy import ToyTokenizer
from protos.walkway.v1 import inference_pb2 as pb
from protos.walkway.v1.inference_pb2_grpc import InferenceServiceStub
from service.app import tokenizer_of
from service.config import ConfigError, load_settings
from service.healthcheck import address
from service.healthcheck import main as check_health
from service.logs import configure_logs
from service.messages import StepStats
from service.metrics import Metrics
from service.settings import Log, Server
from tests.tiny_models import saved, tiny_model
from tests.wire import ask

QUIET = [
    "model.source=toy",
    "metrics.enabled=false",
    "server.port=0",
    "admin.port=0",
    "server.drain_delay_s=0",
]
START_S = 30.0


@pytest.fixture(autouse=True)
def _no_log_settings_left() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        yield holder.getsockname()[1]


class Running:
    """`walkway serve` in a process of its own, with the toy."""

    def __init__(self, *assignments: str, config: Path | None = None) -> None:
        command = [sys.executable, "-m", "cli.main", "serve"]
        if config:
            command += ["--config", str(config)]
        for assignment in [*QUIET, "log.format=json", *assignments]:
            command += ["--set", assignment]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.started = self.until("serving")
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.started['port']}")
        self.stub = InferenceServiceStub(self.channel)

    def until(self, event: str) -> dict[str, object]:
        assert self.process.stderr
        for line in self.process.stderr:
            found = json.loads(line)
            if found["event"] == event:
                return found
        raise AssertionError(f"the service ended with {self.process.wait()}")

    def ended(self, limit_s: float = 10.0) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=limit_s)
        return self.process.returncode, errors

    def engine_pid(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for pid in map(int, children.read_text().split()):
            if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text():
                return pid
        raise AssertionError("no engine process")


@contextmanager
def running(*assignments: str, config: Path | None = None) -> Iterator[Running]:
    service = Running(*assignments, config=config)
    try:
        yield service
    finally:
        service.channel.close()
        service.process.kill()
        service.process.communicate()


def fails(capfd: pytest.CaptureFixture[str], *assignments: str) -> str:
    """The one line of a service that does not start."""
    assert serve(None, [*QUIET, *assignments]) == 2
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("server.prot=1", "server.prot"),
        ("sever.port=1", "sever"),
        ("server.port=abc", "server.port"),
        ("server.port=70000", "70000"),
        ("server.max_message_bytes=4294967296", "server.max_message_bytes"),
        ("server.keepalive_min_ping_s=inf", "server.keepalive_min_ping_s"),
        ("engine.isolation=fork", "engine.isolation"),
        ("engine.max_step_tokens=1", "engine.max_step_tokens"),
        ("engine.max_rows=0", "engine.max_rows"),
        ("engine.target_gap_ms=inf", "engine.target_gap_ms"),
        ("engine.max_rows=many", "engine.max_rows"),
        ("nonsense", "group.field=value"),
        ("model.source=/no/such/model", "/no/such/model"),
    ],
)
def test_a_bad_setting_is_one_line_and_exit_code_2(
    capfd: pytest.CaptureFixture[str], assignment: str, words: str
) -> None:
    assert words in fails(capfd, assignment)


def test_a_setting_that_is_both_value_and_group_is_one_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert "server.port.x=2" in fails(capfd, "server.port=1", "server.port.x=2")


def test_an_occupied_port_is_one_line_and_exit_code_2(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with taken_port() as port:
        assert f"127.0.0.1:{port}" in fails(capfd, f"server.port={port}")
        assert f"127.0.0.1:{port}" in fails(
            capfd, "metrics.enabled=true", f"metrics.port={port}"
        )
        line = fails(capfd, f"admin.port={port}")
        assert line.startswith("walkway: admin.port: ")
        assert f"127.0.0.1:{port}" in line


def test_no_place_for_temporary_files_is_one_line_and_exit_code_2(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:  # capfd itself needs the folder at its end
        patched.setattr("tempfile.tempdir", "/no/such/folder")
        line = fails(capfd)
    assert "No such file" in line


def test_a_read_only_dev_shm_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def sealed(*arguments: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "/dev/shm/pym-1-abc")

    monkeypatch.setattr(heap, "Arena", sealed)
    monkeypatch.setattr(heap.BufferWrapper, "_heap", heap.Heap())
    line = fails(capfd, "model.source=toy")
    assert "no memory can be shared with the engine's process" in line
    assert "Read-only file system: /dev/shm/pym-1-abc" in line
    assert "--ipc=host" in line


def test_a_scheduler_that_does_not_exist_is_one_line_and_exit_code_2(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert "sjf" in fails(capfd, "scheduler.name=sjf", "log.level=error")


def test_an_attention_backend_that_was_not_built_is_one_line_and_exit_code_2(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("service.app.tokenizer_of", lambda source: ToyTokenizer())
    monkeypatch.setattr(library, "PATH", library.PATH.with_name("absent.so"))
    library.load.cache_clear()
    model = saved(tiny_model("llama"), tmp_path)
    capfd.readouterr()
    try:
        line = fails(
            capfd,
            f"model.source={model}",
            "attention.backend=cpu",
            "engine.isolation=inline",
        )
    finally:
        library.load.cache_clear()
    assert line.startswith("walkway: attention.backend = cpu: ")
    assert "not built" in line


def test_settings_come_from_file_environment_and_command_line_the_last_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "walkway.toml"
    file.write_text(
        '[server]\nhost = "0.0.0.0"\nport = 1\ngrace_s = 1\n[scheduler.options]\na = 1\n'
    )
    monkeypatch.setenv("WALKWAY_CONFIG", str(file))
    monkeypatch.setenv("WALKWAY_SERVER__PORT", "2")
    monkeypatch.setenv("WALKWAY_SERVER__GRACE_S", "2")
    settings = load_settings(None, ["server.grace_s=3", "scheduler.options.b=x"])
    assert (settings.server.host, settings.server.port) == ("0.0.0.0", 2)
    assert settings.server.grace_s == 3.0
    assert settings.scheduler.options == {"a": 1, "b": "x"}


@pytest.mark.parametrize(
    "name", ["WALKWAY_SERVR__PORT", "WALKWAY_SERVER__PRT", "WALKWAY___PORT", "WALKWAY_A_B__C"]
)
def test_an_unknown_variable_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(ConfigError):
        load_settings()


def service_links(service: str, *ports: tuple[str, int]) -> dict[str, str]:
    """What Kubernetes puts into a pod for a Service with these named ports."""
    prefix, address = service.upper().replace("-", "_"), "10.96.0.7"
    links = {f"{prefix}_SERVICE_HOST": address}
    for index, (name, port) in enumerate(ports):
        if index == 0:
            links[f"{prefix}_SERVICE_PORT"] = str(port)
            links[f"{prefix}_PORT"] = f"tcp://{address}:{port}"
        links[f"{prefix}_SERVICE_PORT_{name.upper().replace('-', '_')}"] = str(port)
        of_port = f"{prefix}_PORT_{port}_TCP"
        links[of_port] = f"tcp://{address}:{port}"
        links |= {f"{of_port}_PROTO": "tcp", f"{of_port}_PORT": str(port)}
        links[f"{of_port}_ADDR"] = address
    return links


GRPC, ADMIN_GRPC, METRICS = ("grpc", 50051), ("grpc-admin", 50052), ("metrics", 9464)


@pytest.mark.parametrize(
    "links",
    [
        service_links("walkway", GRPC, METRICS),
        service_links("walkway-admin", ADMIN_GRPC),
        service_links("walkway-server", GRPC, ADMIN_GRPC, METRICS),
        {"WALKWAY_SERVER": "tcp://10.96.0.7:50051", "WALKWAY_MODEL": "mine"},
    ],
    ids=["walkway", "walkway-admin", "walkway-server", "groups"],
)
def test_a_service_of_our_name_in_kubernetes_changes_no_setting(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], links: dict[str, str]
) -> None:
    before = load_settings()
    for name, value in links.items():
        monkeypatch.setenv(name, value)
    assert load_settings() == before
    with taken_port() as port:
        assert "cannot listen on" in fails(capfd, f"server.port={port}")
    monkeypatch.setenv("WALKWAY_SERVER__PORT", str(port))
    assert load_settings().server.port == port
    assert check_health() == 1
    assert capfd.readouterr().out == "UNAVAILABLE\n"


@pytest.mark.parametrize("text", ["[server]\nprot = 1\n", "[sever]\n", "port =", "port = 1\n"])
def test_a_bad_config_file_is_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "walkway.toml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        load_settings(file)
    with pytest.raises(ConfigError, match="No such file"):
        load_settings(tmp_path / "none.toml")


def test_the_front_end_and_the_client_do_without_torch() -> None:
    code = (
        "import sys, service.app, cli.asking, cli.dialogue, cli.info, cli.demo\n"
        "import cli.scheduler, cli.requests, cli.top\n"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stderr


@pytest.mark.parametrize(
    ("host", "target"),
    [
        ("0.0.0.0", "127.0.0.1:7"),
        ("::", "[::1]:7"),
        ("::1", "[::1]:7"),
        ("example.org", "example.org:7"),
    ],
)
def test_the_health_check_asks_where_the_service_listens(host: str, target: str) -> None:
    assert address(Server(host=host, port=7)) == target


def test_a_health_check_with_a_bad_setting_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WALKWAY_SERVER__PORT", "abc")
    assert check_health() == 1
    assert capfd.readouterr().out.startswith("setting server.port: ")


def test_a_health_check_asks_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with taken_port() as port, running() as service:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("WALKWAY_SERVER__PORT", str(service.started["port"]))
        assert check_health() == 0


LOADING = """
import asyncio, os, signal, threading, time
from service.app import serve
from service.build import build
from tests.wire import make_settings

def load(source):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)

asyncio.run(serve(make_settings(), build, load, make_settings))
"""


def test_a_signal_while_a_model_is_fetched_ends_the_service_at_once() -> None:
    subprocess.run([sys.executable, "-c", LOADING], check=True, timeout=20)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_calls_finish_and_exits_with_0(number: signal.Signals) -> None:
    with running() as service:
        call = service.stub.GenerateStream(ask(max_tokens=400))
        next(call)
        service.process.send_signal(number)
        assert list(call)[-1].summary.usage.output_tokens == 400
        assert service.ended()[0] == 0


def test_what_outlives_the_grace_ends_with_a_status_and_exit_code_0() -> None:
    with running("server.grace_s=0.2") as service:
        call = service.stub.GenerateStream(ask(max_tokens=16_000))
        next(call)
        sent_s = time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert service.ended()[0] == 0
        assert time.monotonic() - sent_s < 5


def test_an_engine_that_is_lost_for_good_is_one_line_and_exit_code_1() -> None:
    with running("engine.max_deaths=1") as service:
        call = service.stub.GenerateStream(ask(max_tokens=16_000))
        next(call)
        os.kill(service.engine_pid(), signal.SIGKILL)
        killed_s = time.monotonic()
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert time.monotonic() - killed_s < 1
        code, errors = service.ended()
        assert code == 1
        assert errors.strip().splitlines()[-1].startswith("walkway: ")
        assert "Traceback" not in errors


def test_an_engine_that_is_lost_while_draining_does_not_spoil_the_exit_code() -> None:
    with running("engine.max_deaths=1") as service:
        call = service.stub.GenerateStream(ask(max_tokens=16_000))
        next(call)
        engine = service.engine_pid()
        service.process.send_signal(signal.SIGTERM)
        service.until("draining")
        os.kill(engine, signal.SIGKILL)
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        code, errors = service.ended()
        assert code == 0
        assert "engine_lost_while_draining" in errors
        assert "Traceback" not in errors


def test_a_hangup_exchanges_the_scheduler_and_disturbs_no_stream(tmp_path: Path) -> None:
    config = tmp_path / "walkway.toml"
    config.write_text("")
    with running(config=config) as service:

        def reloads(text: str, event: str) -> dict[str, object]:
            config.write_text(text)
            service.process.send_signal(signal.SIGHUP)
            return service.until(event)

        call = service.stub.GenerateStream(ask(max_tokens=1500))
        texts = [next(call).text]
        os.kill(service.engine_pid(), signal.SIGHUP)  # as a terminal that closes does
        found = reloads('[scheduler]\nname = "static"', "scheduler_exchanged")
        assert found["scheduler"] == "static"
        for text in ("[scheduler]\nname = 7", '[scheduler]\nname = "none"', "oh"):
            assert reloads(text, "reload_failed")["why"]
        warning = reloads("[server]\ngrace_s = 3", "settings_need_a_restart")
        assert warning["changed"] == ["server.grace_s"]
        texts += [message.text for message in call]
        assert "".join(texts) == service.stub.Generate(ask(max_tokens=1500)).text
        model = service.stub.GetModelInfo(pb.GetModelInfoRequest())
        assert model.scheduler == "fcfs"


def test_the_first_line_says_what_is_served_and_the_last_what_was_done() -> None:
    with running("metrics.enabled=true", "metrics.port=0") as service:
        for name in ("model", "dtype", "attention", "attention_why", "scheduler", "kv_pages"):
            assert service.started[name] is not None
        service.stub.Generate(ask(tenant="someone", request_id="mine"))
        url = f"http://127.0.0.1:{service.started['metrics_port']}/metrics"
        with urllib.request.urlopen(url) as page:
            text = page.read().decode()
        assert sample(text, "output_tokens_total") == 8
        assert sample(text, "requests_finished_total", finish="length") == 1
        for part in ("schedule", "model", "sample", "copy"):
            assert sample(text, "step_seconds_count", part=part) == 8
        assert sample(text, "step_seconds_sum", part="schedule") > 0
        begun = "process_start_time_seconds"
        assert sample(text, f"engine_{begun}") > unlabelled(text, begun)
        for name in ("queue", "time_to_first_token", "time_per_output_token"):
            assert sample(text, f"{name}_seconds_count") == 1
        service.process.send_signal(signal.SIGTERM)
        _, errors = service.ended()
        lines = [json.loads(line) for line in errors.splitlines()]
        (ended,) = (line for line in lines if line["event"] == "request_ended")
        assert (ended["request_id"], ended["tenant"]) == ("mine", "someone")
        assert (ended["prompt_tokens"], ended["output_tokens"]) == (5, 8)
        assert ended["total_s"] >= ended["ttft_s"] >= ended["queue_s"] >= 0
        for name, part in (("queue", "queue_s"), ("time_to_first_token", "ttft_s")):
            found_s = sample(text, f"{name}_seconds_sum")
            assert found_s == pytest.approx(ended[part], abs=1e-4)
        gaps_s = 7 * sample(text, "time_per_output_token_seconds_sum")
        assert 0 <= gaps_s <= ended["total_s"] - ended["ttft_s"] + 1e-3


def unlabelled(page: str, name: str) -> float:
    """Of the page of metrics: what is not the service's own."""
    (line,) = (line for line in page.splitlines() if line.startswith(f"{name} "))
    return float(line.split()[-1])


def sample(page: str, name: str, **labels: str) -> float:
    """Of the page of metrics."""
    wanted = (f"walkway_{name}", {"model_name": "toy"} | labels)
    (found,) = (
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if (sample.name, sample.labels) == wanted
    )
    return found


def test_the_parts_of_a_step_are_told_apart() -> None:
    metrics = Metrics("toy")
    metrics.engine.step(
        StepStats(steps=2, schedule_s=1.0, model_s=2.0, sample_s=3.0, copy_s=4.0)
    )
    for seconds, part in enumerate(("schedule", "model", "sample", "copy"), start=1):
        for name, value in {"count": 2, "sum": seconds}.items():
            labels = {"part": part}
            found = metrics.registry.get_sample_value(f"walkway_step_seconds_{name}", labels)
            assert found == value


def test_on_a_console_a_line_is_for_people_and_shows_no_local_variable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs(Log(format="console"))
    prompt = "of a caller"
    try:
        raise RuntimeError(len(prompt))
    except RuntimeError:
        structlog.get_logger().error("step_raised", in_a_row=2, exc_info=True)
    line, *trace = capsys.readouterr().err.splitlines()
    plain = re.sub("\x1b\\[[0-9;]*m", "", line)
    assert re.search(r"\[error +\] step_raised +in_a_row=2$", plain)
    assert trace[0].startswith("Traceback")
    assert trace[-1] == "RuntimeError: 11"
    assert prompt not in "".join(trace[:-1])


@pytest.mark.parametrize("number", [None, signal.SIGTERM])
def test_the_demo_leaves_no_service_behind(number: signal.Signals | None) -> None:
    command = [sys.executable, "-m", "cli.main", "demo", "--model", "toy"]
    tokens = "10" if number is None else "60000"
    demo = subprocess.Popen(
        [*command, "--max-tokens", tokens, "--prompt", "[/x]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert demo.stderr
    target = next(line for line in demo.stderr if line.startswith("serving at")).split()[2]
    if number is not None:
        demo.send_signal(number)
    answer, errors = demo.communicate(timeout=START_S)
    assert demo.returncode == (0 if number is None else 1)
    if number is None:
        assert answer.strip()
        assert "output tokens" in errors
    else:
        assert errors.endswith("walkway: stopped by SIGTERM\n")
    host, port = target.split(":")
    with socket.socket() as probe:
        assert probe.connect_ex((host, int(port))) != 0


@pytest.mark.parametrize(
    ("fact", "events"),
    [
        ("", []),
        ("corrects_template", ["chat_template_begins_twice"]),
        ("misreads_template", ["chat_template_misread"]),
        ("assumes_rule", ["tokenizer_rule_assumed"]),
    ],
)
def test_what_is_not_done_to_the_letter_is_told_at_start(
    monkeypatch: pytest.MonkeyPatch, fact: str, events: list[str]
) -> None:
    facts = ("corrects_template", "misreads_template", "assumes_rule")
    found = SimpleNamespace(rule="default", **{name: name == fact for name in facts})
    monkeypatch.setattr("service.app.load_tokenizer", lambda source: found)
    with capture_logs() as logs:
        assert tokenizer_of("some/model") is found
    assert [line["event"] for line in logs] == events
