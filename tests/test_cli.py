"""The command-line client against a running service."""

import asyncio
import dataclasses
from collections.abc import Iterator

import msgspec
import pytest
import structlog
from rich.console import Console
from typer.testing import CliRunner, Result

from cli.asking import Wishes, summary_line
from cli.main import app
from cli.top import statistics_table
from protos.walkway.v1 import admin_pb2
from protos.walkway.v1 import inference_pb2 as pb
from service.engine_process import Built
from service.logs import configure_logs
from service.settings import Log
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
    target = f"127.0.0.1:{port}"
    command = [*arguments, "--target", target]
    return await asyncio.to_thread(CliRunner().invoke, app, command, input=stdin)


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
        options = ("--option", "age_s=2.5", "--option", "max_preemptions=3")
        said = await walkway(wire, "scheduler", "set", "priority", *options)
        assert said.exit_code == 0
        for words in ("priority", "age_s = 2.5", "max_preemptions = 3"):
            assert words in said.stdout
            assert words in (await walkway(wire, "scheduler")).stdout
        said = await walkway(wire, "scheduler", "set", "sjf")
        assert said.exit_code == 1
        assert said.stderr.startswith("walkway: INVALID_ARGUMENT: name: scheduler 'sjf'")
        assert len(said.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("option", ["age_s", "=3", "day=2020-01-01"])
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
