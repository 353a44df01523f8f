"""The `walkway` command: the service and its command-line client.

Each command imports what it uses when it runs, so that `--help` and the client start at
once. Exit codes: 0 done, 1 the service said no or was not there, 2 a mistake in the call.
"""

from pathlib import Path
from typing import Annotated

import typer

from cli.failures import fail_in_one_line
from cli.operating import register_operating
from cli.plugins import register_plugins
from cli.simulation import register_simulation

TARGET = "127.0.0.1:50051"
UINT32 = 2**32 - 1

app = typer.Typer(
    name="walkway",
    help="Serve a decoder language model over gRPC, and talk to it.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Target = Annotated[str, typer.Option(help="host:port of the service.")]
Config = Annotated[Path | None, typer.Option(help="TOML file; also WALKWAY_CONFIG.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", help="group.field=value, over file and environment."),
]
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


@app.command()
def serve(config: Config = None, assignments: Assignments = None) -> None:
    """Run the service until SIGTERM or Ctrl-C."""
    from cli.serve import serve as run

    raise typer.Exit(run(config, assignments or []))


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="Text to continue; - reads it from stdin.")],
    target: Target = TARGET,
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
    with fail_in_one_line(target):
        ask_text(target, prompt, wishes)


@app.command()
def chat(
    message: Annotated[
        str | None, typer.Argument(help="One question; none: a dialogue.")
    ] = None,
    target: Target = TARGET,
    system: System = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
) -> None:
    """Talk to the model, by its own chat template. Ctrl-D ends a dialogue."""
    from cli.asking import Wishes
    from cli.dialogue import ask_once, talk

    wishes = Wishes(max_tokens, temperature, top_k, top_p, seed)
    with fail_in_one_line(target):
        if message is None:
            talk(target, system, wishes)
        else:
            ask_once(target, system, message, wishes)


@app.command()
def info(target: Target = TARGET) -> None:
    """What the service serves, and with which limits."""
    from cli.info import show_info

    with fail_in_one_line(target):
        show_info(target)


@app.command()
def doctor(
    config: Config = None,
    assignments: Assignments = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Say what `serve` would run on this machine, why, and what is missing."""
    from cli.doctor import doctor as run

    raise typer.Exit(run(config, assignments or [], as_json))


@app.command()
def demo(
    model: Annotated[str, typer.Option(help="As the setting model.source.")] = "default",
    prompt: Annotated[str, typer.Option(help="What to ask.")] = "What is a moving walkway?",
    max_tokens: Annotated[
        int, typer.Option(min=1, max=UINT32, help="Output tokens at most.")
    ] = 96,
) -> None:
    """Start the service, stream one answer from it, stop it."""
    from cli.demo import run_demo

    raise typer.Exit(run_demo(model, prompt, max_tokens))


register_operating(app)
register_plugins(app)
register_simulation(app)


def main() -> None:
    """Entry of the `walkway` command."""
    app(prog_name="walkway")


if __name__ == "__main__":
    main()
