"""The operator's commands: they talk to the service's admin address."""

from typing import Annotated

import typer

from cli.arguments import ADMIN_TARGET, AdminTarget, AsJson, Port
from cli.completion import complete_scheduler
from cli.failures import asking
from cli.target import ADMIN

PANEL = "Operate"

scheduler_app = typer.Typer(help="Show the scheduler, or exchange it.")


@scheduler_app.callback(invoke_without_command=True)
def scheduler(
    context: typer.Context,
    target: AdminTarget = ADMIN_TARGET,
    port: Port = None,
    as_json: AsJson = False,
) -> None:
    """Show the scheduler, its options and how it does."""
    context.obj = (target, port, as_json)
    if context.invoked_subcommand is not None:
        return
    from cli.scheduler import show_scheduler

    with asking(target, port, ADMIN) as address:
        show_scheduler(address, as_json)


@scheduler_app.command("set")
def set_scheduler(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help="As the setting scheduler.name.", autocompletion=complete_scheduler
        ),
    ],
    option: Annotated[
        list[str] | None, typer.Option("--option", help="option=value; repeatable.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Here or before `set`.", show_default=False),
    ] = None,
    port: Port = None,
    as_json: AsJson = False,
) -> None:
    """Plan by another scheduler from the next step on; no stream is dropped."""
    from cli.scheduler import exchange_scheduler

    before_target, before_port, before_json = context.obj
    with asking(target or before_target, port or before_port, ADMIN) as address:
        as_json = as_json or before_json
        raise typer.Exit(exchange_scheduler(address, name, option or [], as_json))


def requests(
    target: AdminTarget = ADMIN_TARGET,
    port: Port = None,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, help="At most so many, oldest first.")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """List the requests in the engine."""
    from cli.requests import show_requests

    with asking(target, port, ADMIN) as address:
        show_requests(address, limit, as_json)


def top(
    target: AdminTarget = ADMIN_TARGET,
    port: Port = None,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, max=3600, help="Seconds.")
    ] = 1.0,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many updates.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="For programs: a line an update, one by default.")
    ] = False,
) -> None:
    """Watch what the engine does, until Ctrl-C."""
    from cli.top import print_statistics, watch

    with asking(target, port, ADMIN) as address:
        if as_json:
            print_statistics(address, interval_s, count or 1)
        else:
            watch(address, interval_s, count)


def register_operating(app: typer.Typer) -> None:
    """Add the operator's commands."""
    app.add_typer(scheduler_app, name="scheduler", rich_help_panel=PANEL)
    for command in (requests, top):
        app.command(rich_help_panel=PANEL)(command)
