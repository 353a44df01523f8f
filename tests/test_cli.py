"""The command-line client against a running service."""

import asyncio
import dataclasses
import json
from collections.abc import Iterator
from importlib.metadata import version

import msgspec
import pytest
import structlog
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner, Result

from cli.asking import Wishes, summary_line
from cli.completion import complete_profile, complete_scheduler, complete_setting
from cli.main import app
from cli.requests import requests_table
from cli.top import statistics_table
from protos.walkway.v1 import admin_pb2
from protos.walkway.v1 import inference_pb2 as pb
from service.engine_process import Built
from service.logs import configure_logs
from service.settings import Log
from tests.test_plain_install import COMMANDS
from tests.wire import Wire, ask, first_message, serving, toy_build


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    configure_logs(Log(level="error"))
    yield
    structlog.reset_defaults()


OPERATORS = ("scheduler", "requests", "top")


async def walkway(wire: Wire | None, *arguments: str, stdin: str | bytes = "") -> Result:
    port = 1
    if wire:
        listeners = wire.service.listeners
        port = listeners.admin_port if arguments[0] in OPERATORS else listeners.port
    return await run(*arguments, "--target", f"127.0.0.1:{port}", stdin=stdin)


async def run(*arguments: str, stdin: str | bytes = "") -> Result:
    return await asyncio.to_thread(
        CliRunner().invoke, app, arguments, input=stdin, prog_name="walkway"
    )


async def test_generate_writes_the_answer_and_what_it_took() -> None:
    async with serving() as wire:
        options = ("--max-tokens", "12", "--temperature", "0", "--seed", "7")
        said = await walkway(wire, "generate", "hello", *options)
        whole = await wire.stub.Generate(ask(max_tokens=12, ignore_eos=False))
        assert said.exit_code == 0
        assert said.stdout == whole.text + "\n"
        assert "5 prompt tokens" in said.stderr
        assert f"{whole.summary.usage.output_tokens} output tokens" in said.stderr
        assert "seed 7" in " ".join(said.stderr.split())


async def test_generate_reads_a_prompt_from_stdin() -> None:
    async with serving() as wire:
        options = ("--max-tokens", "3", "--temperature", "0")
        by_stdin = await walkway(wire, "generate", "-", *options, stdin="hello")
        assert by_stdin.stdout == (await walkway(wire, "generate", "hello", *options)).stdout


async def test_a_refusal_is_one_line_with_its_status() -> None:
    async with serving() as wire:
        said = await walkway(wire, "generate", "hello", "--temperature", "11")
        assert said.exit_code == 1
        assert said.stderr.startswith("walkway: INVALID_ARGUMENT: sampling.temperature")
        assert len(said.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("option", ["--top-k", "--max-tokens"])
async def test_a_number_that_no_field_can_hold_is_a_mistake_in_the_call(option: str) -> None:
    said = await walkway(None, "generate", "x", option, str(2**32))
    assert said.exit_code == 2


@pytest.mark.parametrize(("prompt", "stdin"), [("\udcff", b""), ("-", b"\xff")])
async def test_text_that_is_no_utf_8_is_one_line(prompt: str, stdin: bytes) -> None:
    said = await walkway(None, "generate", prompt, stdin=stdin)
    assert said.exit_code == 2
    assert said.stderr.startswith("walkway: the text is not valid UTF-8")
    assert len(said.stderr.strip().splitlines()) == 1


async def test_a_proxy_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as wire:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        assert (await walkway(wire, "info")).exit_code == 0


@pytest.mark.parametrize(
    "command",
    [
        ("generate", "x"),
        ("chat", "x"),
        ("info",),
        ("scheduler",),
        ("scheduler", "set", "fcfs"),
        ("requests",),
        ("top",),
    ],
)
async def test_nobody_at_the_target_is_one_line(command: tuple[str, ...]) -> None:
    said = await walkway(None, *command)
    assert said.exit_code == 1
    assert said.stderr.strip().startswith("walkway: nothing answers at 127.0.0.1:1")
    assert len(said.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("command", [("info",), ("requests",)])
async def test_a_wrong_port_is_named_for_what_it_is(command: tuple[str, ...]) -> None:
    async with serving(metrics={"enabled": True, "port": 0}) as wire:
        ports = wire.service.listeners
        wrong = ports.port if command[0] in OPERATORS else ports.admin_port
        names = ("admin", "inference") if command[0] in OPERATORS else ("inference", "admin")
        said = await run(*command, "--port", str(wrong))
        line = f"127.0.0.1:{wrong} is a service's {names[1]} address, and this command asks"
        assert said.exit_code == 1
        assert said.stderr.startswith(f"walkway: {line} the {names[0]} one: ")
        said = await run(*command, "--port", str(ports.metrics_port))
        assert "speaks HTTP/1.1 (the metrics address?)" in said.stderr
        assert len(said.stderr.splitlines()) == 1


async def test_a_target_may_be_a_url() -> None:
    async with serving() as wire:
        port = wire.service.listeners.port
        assert (await run("info", "--target", f"http://127.0.0.1:{port}/")).exit_code == 0
        assert (await run("info", "--target", str(port))).exit_code == 0
        assert (await run("info", "--port", str(port))).exit_code == 0


async def test_a_host_that_does_not_exist_is_one_line() -> None:
    said = await run("info", "--target", "nobody.invalid")
    assert (said.exit_code, said.stderr) == (
        1,
        "walkway: no host named nobody.invalid is found\n",
    )


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (("generate",), "Missing argument 'prompt'; see `walkway generate --help`"),
        (("generate", "x", "--top-k", "few"), "Invalid value for '--top-k': "),
        (("info", "--port", "70000"), "Invalid value for '--port': "),
        (("info", "--target", "h:x"), "Invalid value for --target: h:x: port 'x' is not 1 "),
        (("inof",), "No such command 'inof'"),
        (("info", "--jsn"), "No such option: --jsn"),
        (("scheduler", "set"), "Missing argument 'name'; see `walkway scheduler set --help`"),
    ],
)
async def test_a_mistake_in_a_call_is_one_line(command: tuple[str, ...], line: str) -> None:
    said = await run(*command)
    assert said.exit_code == 2
    assert said.stderr.startswith(f"walkway: {line}")
    assert len(said.stderr.splitlines()) == 1 and not said.stdout


async def test_version_and_help_have_their_usual_names() -> None:
    assert (await run("--version")).stdout == f"walkway {version('walkway')}\n"
    helped = await run("-h")
    assert (await run("--help")).stdout == (await run()).stdout == helped.stdout
    assert "--install-completion" in helped.stdout
    assert "Usage: walkway info" in " ".join((await run("info", "-h")).stdout.split())


@pytest.mark.parametrize("command", COMMANDS)
async def test_help_fits_80_columns_and_nothing_is_cut(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = await run(*command.split(), "-h")
    assert said.exit_code == 0
    assert max(map(len, said.stdout.splitlines())) <= 80
    assert "…" not in said.stdout


def test_a_shell_completes_settings_schedulers_and_profiles() -> None:
    assert list(complete_setting("memory.po")) == ["memory.pool_bytes="]
    assert list(complete_setting("model.device=c")) == ["model.device=cpu", "model.device=cuda"]
    assert complete_scheduler("f") == ["fair", "fcfs"]
    assert "cpu" in complete_profile("")


async def test_health_is_shown_by_name_and_told_by_the_exit_code() -> None:
    async with serving() as wire:
        said = await walkway(wire, "health", "--json")
        assert said.exit_code == 0
        states = json.loads(said.stdout)
        assert states[""] == states["walkway.v1.InferenceService"] == "SERVING"
        admin = wire.service.listeners.admin_port
        found = json.loads((await run("health", "--json", "--port", str(admin))).stdout)
        assert found["walkway.v1.AdminService"] == "SERVING"
        named = await walkway(wire, "health", "--service", "walkway.v1.InferenceService")
        assert (named.exit_code, named.stdout.split()[-1]) == (0, "SERVING")
        unknown = await walkway(wire, "health", "--service", "nobody")
        assert (unknown.exit_code, "unknown here" in unknown.stdout) == (1, True)
        wire.service.listeners.drain()
        said = await walkway(wire, "health")
        assert said.exit_code == 1
        assert "NOT_SERVING" in said.stdout


async def test_a_prompt_is_shown_as_tokens() -> None:
    async with serving() as wire:
        said = await walkway(wire, "tokenize", "hé", "--json")
        assert said.exit_code == 0
        assert json.loads(said.stdout)["tokens"] == [
            {"id": 104, "text": "h"},
            {"id": 195, "text": "\ufffd"},
            {"id": 169, "text": "\ufffd"},
        ]
        chat = await walkway(wire, "tokenize", "-", "--chat", "--system", "x", stdin="hé")
        turns = [
            pb.ChatMessage(role=r, content=c) for r, c in (("system", "x"), ("user", "hé"))
        ]
        request = pb.TokenizeRequest(chat=pb.Chat(messages=turns))
        ids = (await wire.stub.Tokenize(request)).token_ids
        assert f"{len(ids)} tokens" in chat.stdout
        assert (await walkway(wire, "tokenize", "x", "--system", "y")).exit_code == 2


async def test_a_dialogue_ends_answers_at_its_stop_strings() -> None:
    async with serving() as wire:
        options = ("--max-tokens", "40", "--temperature", "0")
        whole = (await walkway(wire, "chat", "one", *options)).stdout.strip()
        said = await walkway(wire, "chat", "one", *options, "--stop", whole[3:5])
        assert said.stdout.strip() == whole[:3]


@pytest.mark.parametrize("command", ["info", "scheduler", "requests", "top", "schedulers"])
async def test_what_prints_a_table_prints_json_too(command: str) -> None:
    async with serving() as wire:
        said = await (
            run(command, "--json")
            if command == "schedulers"
            else walkway(wire, command, "--json")
        )
        assert said.exit_code == 0, said.stderr
        (line,) = said.stdout.splitlines()
        names = {
            "info": "max_message_bytes",
            "scheduler": "options",
            "requests": "total",
            "top": "uptime",
            "schedulers": "promises",
        }
        found = json.loads(line)
        assert names[command] in (found[0] if isinstance(found, list) else found)


async def test_the_scheduler_of_an_exchange_is_json_too() -> None:
    async with serving() as wire:
        options = ("priority", "--option", "aged_share=0.2", "--json")
        found = json.loads((await walkway(wire, "scheduler", "set", *options)).stdout)
        assert (found["name"], found["options"]["aged_share"]) == ("priority", 0.2)


def test_a_table_of_requests_fits_80_columns() -> None:
    name, tenant = "8b8e3c1a-5f0e-4f0e-9d0e-8b8e3c1a5f0e", "team-research-evaluation"
    found = admin_pb2.ListRequestsResponse()
    found.requests.add(
        id=123456,
        request_id=name,
        state=admin_pb2.REQUEST_STATE_RUNNING,
        tenant=tenant,
        priority=12,
        prompt_tokens=31234,
        output_tokens=1200,
        pages=2031,
        host_pages=400,
        preemptions=3,
        recomputed_tokens=12000,
    ).age.FromSeconds(1234)
    lines = rendered(requests_table(found))
    text = "".join("".join(lines).split())
    for cell in ("31234+1200", "2031+400", "3(12000)", "1234.0", "running"):
        assert cell in text


def test_statistics_of_a_large_pool_fit_80_columns() -> None:
    names = ("running", "waiting", "swapped", "held_pages", "cached_pages", "free_pages")
    now = admin_pb2.StreamStatisticsResponse(**dict.fromkeys(names, 12_345_678))
    now.scheduler = "package.module_of_strategies:LongestPrefixFirst"
    before, now.output_tokens = admin_pb2.StreamStatisticsResponse(), 123_456_789_012
    before.uptime.seconds, now.uptime.seconds = 1, 100_000
    text = " ".join(" ".join(rendered(statistics_table(now, before))).split())
    assert "12345678 held, 12345678 cached, 12345678 free" in text
    assert "123456789012" in text


def rendered(table: Table) -> list[str]:
    """At 80 columns, of which no cell was cut."""
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(table)
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    return lines


async def test_a_dialogue_remembers_what_was_said() -> None:
    async with serving() as wire:
        options = ("--max-tokens", "5", "--temperature", "0")
        said = await walkway(wire, "chat", *options, stdin="one\n\ntwo\n")
        assert said.exit_code == 0
        first, second = said.stdout.splitlines()
        turns = [("user", "one"), ("assistant", first), ("user", "two")]
        chat = pb.Chat(messages=[pb.ChatMessage(role=r, content=c) for r, c in turns])
        whole = await wire.stub.Generate(ask(chat=chat, max_tokens=5, ignore_eos=False))
        assert second == whole.text


async def test_info_names_the_attention_backend_and_why() -> None:
    async with serving() as wire:
        said = await walkway(wire, "info")
        assert said.exit_code == 0
        assert "the toy has none" in said.stdout
        assert "256 '<eos>'" in said.stdout


async def test_a_model_may_have_any_name() -> None:
    build = toy_build()
    name = "/models/[/red][bold]"
    async with serving(lambda settings: renamed(build(settings), name)) as wire:
        said = await walkway(wire, "info")
        assert said.exit_code == 0
        assert name in said.stdout


async def test_the_scheduler_is_shown_and_exchanged() -> None:
    async with serving() as wire:
        assert "fcfs" in (await walkway(wire, "scheduler")).stdout
        options = ("--option", "aged_share=0.2", "--option", "max_preemptions=3")
        said = await walkway(wire, "scheduler", "set", "priority", *options)
        assert said.exit_code == 0
        for words in ("priority", "aged_share = 0.2", "max_preemptions = 3"):
            assert words in said.stdout
            assert words in (await walkway(wire, "scheduler")).stdout
        said = await walkway(wire, "scheduler", "set", "sjf")
        assert said.exit_code == 1
        assert said.stderr.startswith("walkway: INVALID_ARGUMENT: name: scheduler 'sjf'")
        assert len(said.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("option", ["aged_share", "=3", "day=2020-01-01"])
async def test_an_option_that_cannot_be_sent_is_a_mistake_in_the_call(option: str) -> None:
    said = await walkway(None, "scheduler", "set", "priority", "--option", option)
    assert said.exit_code == 2
    assert len(said.stderr.strip().splitlines()) == 1


async def test_requests_are_listed_with_whatever_names_they_have() -> None:
    async with serving(toy_build(step_s=0.005)) as wire:
        assert (await walkway(wire, "requests")).stdout.strip() == "0 of 0 requests"
        call = wire.stub.GenerateStream(ask(max_tokens=4000, request_id="[/x]", tenant="[red]"))
        await first_message(call)
        said = await walkway(wire, "requests")
        for words in ("[/x]", "[red]", "running", "1 of 1 requests"):
            assert words in said.stdout
        call.cancel()


async def test_top_shows_gauges_and_what_counters_grow_by() -> None:
    async with serving() as wire:
        await wire.stub.Generate(ask(max_tokens=8))
        said = await walkway(wire, "top", "--interval", "0.1", "--count", "2")
        assert said.exit_code == 0
        lines = {line.strip().split("  ")[0]: line for line in said.stdout.splitlines()}
        assert "fcfs" in lines["scheduler"]
        assert lines["output tokens"].split()[2:] == ["8", "0.0"]


def test_a_rate_is_what_a_counter_grew_by_in_a_second() -> None:
    before, now = admin_pb2.StreamStatisticsResponse(), admin_pb2.StreamStatisticsResponse()
    before.uptime.seconds, now.uptime.seconds = 10, 12
    before.output_tokens, now.output_tokens = 100, 150
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(statistics_table(now, before))
    (line,) = (line for line in captured.get().splitlines() if "output" in line)
    assert line.split()[2:] == ["150", "25.0"]


def test_a_request_that_gave_way_says_so_in_its_summary_line() -> None:
    receipt = pb.SchedulingReceipt(preemptions=2, recomputed_tokens=40, swapped_pages=12)
    receipt.paused.FromMilliseconds(1500)
    line = summary_line(pb.Summary(scheduling=receipt))
    assert "gave way 2 times (1.50 s, 40 tokens recomputed, 12 pages swapped)" in line
    assert "gave way" not in summary_line(pb.Summary())


def renamed(built: Built, model: str) -> Built:
    ready = msgspec.structs.replace(built.ready, model=model)
    return dataclasses.replace(built, ready=ready)


def test_a_wish_that_is_absent_stays_absent() -> None:
    request = Wishes(temperature=0.0).request()
    assert request.sampling.HasField("temperature")
    assert not request.sampling.HasField("seed")
    assert not request.stopping.HasField("max_tokens")


def test_the_summary_line_needs_no_times() -> None:
    assert "0 output tokens" in summary_line(pb.Summary())
