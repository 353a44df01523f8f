"""The commands for who writes schedulers: they need no service."""

from typing import Annotated

import typer

from cli.arguments import AsJson
from cli.completion import complete_scheduler
from schedulers.interface import Promise

PANEL = "Write and compare schedulers"


def register_plugins(app: typer.Typer) -> None:
    """Add them to the command line."""
    for command in (schedulers, check_scheduler):
        app.command(rich_help_panel=PANEL)(command)


def schedulers(as_json: AsJson = False) -> None:
    """List the schedulers that are found, their options and promises."""
    from cli.schedulers import show_schedulers

    show_schedulers(as_json)


def check_scheduler(
    name: Annotated[
        str,
        typer.Argument(
            help="As the setting scheduler.name.", autocompletion=complete_scheduler
        ),
    ],
    options: Annotated[
        list[str] | None,
        typer.Option("--option", "--options", help="option=value; repeatable."),
    ] = None,
    examples: Annotated[int, typer.Option(min=1, help="Cases a question.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Another one makes other cases.")] = 0,
    horizon_s: Annotated[
        float, typer.Option(min=1, help="No starvation: virtual seconds without a token.")
    ] = 3600.0,
    recomputes: Annotated[
        int, typer.Option(min=1, help="Bounded recompute: times its own tokens.")
    ] = 8,
    hours: Annotated[
        float,
        typer.Option(min=0.05, help="Steady: virtual hours of overload; 6 take a minute."),
    ] = 0.5,
    only: Annotated[
        list[Promise] | None, typer.Option(help="Ask for this promise; repeatable.")
    ] = None,
    plans: Annotated[int, typer.Option(min=0, help="Plans to time; 0: none.")] = 200,
    as_json: AsJson = False,
) -> None:
    """Hold a scheduler to its promises on loads made up for it."""
    from cli.check_scheduler import Wanted, check_scheduler

    chosen = tuple(only or ())
    wanted = Wanted(examples, seed, horizon_s, recomputes, hours, chosen, plans, as_json)
    raise typer.Exit(check_scheduler(name, options or [], wanted))
