"""The command-line client against a running service."""

import asyncio
from collections.abc import Iterator

import pytest
import structlog
from typer.testing import CliRunner, Result

from cli.asking import Wishes, summary_line
from cli.main import app
from protos.walkway.v1 import inference_pb2 as pb
from service.logs import configure_logs
from service.settings import Log
from tests.wire import Wire, ask, serving


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    configure_logs(Log(level="error"))
    yield
    structlog.reset_defaults()


async def walkway(wire: Wire | None, *arguments: str, stdin: str | bytes = "") -> Result:
    target = f"127.0.0.1:{wire.service.port if wire else 1}"
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


@pytest.mark.parametrize("command", [("generate", "x"), ("chat", "x"), ("info",)])
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


def test_a_wish_that_is_absent_stays_absent() -> None:
    request = Wishes(temperature=0.0).request()
    assert request.sampling.HasField("temperature")
    assert not request.sampling.HasField("seed")
    assert not request.stopping.HasField("max_tokens")


def test_the_summary_line_needs_no_times() -> None:
    assert "0 output tokens" in summary_line(pb.Summary())
