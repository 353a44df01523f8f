"""The commands that run the service here, or look at what it would run."""

from typing import Annotated

import typer

from cli.arguments import AsJson, Assignments, Config
from cli.client import UINT32

PANEL = "Serve"


def serve(
    config: Config = None,
    assignments: Assignments = None,
    host: Annotated[str | None, typer.Option(help="As --set server.host.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="As --set server.port.")
    ] = None,
) -> None:
    """Run the service until SIGTERM or Ctrl-C."""
    from cli.serve import serve as run

    given = {"server.host": host, "server.port": port}
    more = [f"{name}={value}" for name, value in given.items() if value is not None]
    raise typer.Exit(run(config, [*(assignments or []), *more]))


def doctor(
    config: Config = None, assignments: Assignments = None, as_json: AsJson = False
) -> None:
    """Say what `serve` would run on this machine, why, and what is missing."""
    from cli.doctor import doctor as run

    raise typer.Exit(run(config, assignments or [], as_json))


def settings(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Only these: `memory`, `server.port`."),
    ] = None,
    config: Config = None,
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """List every setting: its value here, where that comes from, what it means."""
    from cli.settings import show_settings

    raise typer.Exit(show_settings(names or [], config, assignments or [], as_json))


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


def register_serving(app: typer.Typer) -> None:
    """Add the commands to `walkway`."""
    for command in (serve, demo, doctor, settings):
        app.command(rich_help_panel=PANEL)(command)
