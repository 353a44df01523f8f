"""The commands that ask a service on behalf of its callers."""

from typing import Annotated

import typer

from cli.arguments import TARGET, AsJson, Port, Target
from cli.failures import asking

PANEL = "Ask"
UINT32 = 2**32 - 1

MaxTokens = Annotated[
    int | None, typer.Option(min=0, max=UINT32, help="Output tokens at most.")
]
Temperature = Annotated[
    float | None, typer.Option(min=0, help="0 is greedy; the model's default when absent.")
]
TopK = Annotated[
    int | None, typer.Option(min=0, max=UINT32, help="Only the k most likely tokens.")
]
TopP = Annotated[float | None, typer.Option(help="Only the most likely ones up to this mass.")]
Seed = Annotated[
    int | None, typer.Option(min=0, max=2**64 - 1, help="For the same answer again.")
]
Stop = Annotated[list[str] | None, typer.Option(help="End where this appears; repeatable.")]
System = Annotated[str | None, typer.Option(help="System message.")]


def generate(
    prompt: Annotated[str, typer.Argument(help="Text to continue; - reads it from stdin.")],
    target: Target = TARGET,
    port: Port = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    stop: Stop = None,
) -> None:
    """Continue a text, as the tokens arrive."""
    from cli.asking import Wishes, ask_text

    wishes = Wishes(max_tokens, temperature, top_k, top_p, seed, tuple(stop or ()))
    with asking(target, port) as address:
        ask_text(address, prompt, wishes)


def chat(
    message: Annotated[
        str | None, typer.Argument(help="One question; none: a dialogue.")
    ] = None,
    target: Target = TARGET,
    port: Port = None,
    system: System = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    stop: Stop = None,
) -> None:
    """Talk to the model, by its own chat template. Ctrl-D ends a dialogue."""
    from cli.asking import Wishes
    from cli.dialogue import ask_once, talk

    wishes = Wishes(max_tokens, temperature, top_k, top_p, seed, tuple(stop or ()))
    with asking(target, port) as address:
        if message is None:
            talk(address, system, wishes)
        else:
            ask_once(address, system, message, wishes)


def tokenize(
    text: Annotated[str, typer.Argument(help="The prompt; - reads it from stdin.")],
    target: Target = TARGET,
    port: Port = None,
    as_chat: Annotated[
        bool, typer.Option("--chat", help="As a user's message, by the chat template.")
    ] = False,
    system: Annotated[str | None, typer.Option(help="System message of --chat.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the tokens of a prompt: ids, and the text of each."""
    from cli.tokenize import show_tokens

    if system is not None and not as_chat:
        raise typer.BadParameter("it needs --chat", param_hint="--system")
    with asking(target, port) as address:
        show_tokens(address, text, as_chat, system, as_json)


def info(target: Target = TARGET, port: Port = None, as_json: AsJson = False) -> None:
    """What the service serves, and with which limits."""
    from cli.info import show_info

    with asking(target, port) as address:
        show_info(address, as_json)


def health(
    target: Target = TARGET,
    port: Port = None,
    service: Annotated[
        str | None, typer.Option(help="Only this name: live, ready, a gRPC service.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask for health: exit code 0 when all that is asked for serves, else 1."""
    from cli.health import show_health

    with asking(target, port) as address:
        raise typer.Exit(show_health(address, service, as_json))


def register_client(app: typer.Typer) -> None:
    """Add the commands to `walkway`."""
    for command in (generate, chat, tokenize, info, health):
        app.command(rich_help_panel=PANEL)(command)
