"""The operator's commands: they talk to the service's admin address."""

from typing import Annotated

import typer

from cli.failures import fail_in_one_line

ADMIN_TARGET = "127.0.0.1:50052"

Target = Annotated[str, typer.Option(help="host:port of the service's admin address.")]

scheduler_app = typer.Typer(help="Show the scheduler, or exchange it.")


@scheduler_app.callback(invoke_without_command=True)
def scheduler(context: typer.Context, target: Target = ADMIN_TARGET) -> None:
    """Show the scheduler, its options and how it does."""
    context.obj = target
    if context.invoked_subcommand is not None:
        return
    from cli.scheduler import show_scheduler

    with fail_in_one_line(target):
        show_scheduler(target)


@scheduler_app.command("set")
def set_scheduler(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="As the setting scheduler.name.")],
    option: Annotated[
        list[str] | None, typer.Option("--option", help="option=value; repeatable.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The same, here or before `set`.", show_default=False)
    ] = None,
) -> None:
    """Plan by another scheduler from the next step on; no stream is dropped."""
    from cli.scheduler import exchange_scheduler

    address = target or context.obj
    with fail_in_one_line(address):
        raise typer.Exit(exchange_scheduler(address, name, option or []))


def requests(
    target: Target = ADMIN_TARGET,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, help="At most so many, oldest first.")
    ] = 100,
) -> None:
    """List the requests in the engine."""
    from cli.requests import show_requests

    with fail_in_one_line(target):
        show_requests(target, limit)


def top(
    target: Target = ADMIN_TARGET,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, max=3600, help="Seconds.")
    ] = 1.0,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many updates.")] = None,
) -> None:
    """Watch what the engine does, until Ctrl-C."""
    from cli.top import watch

    with fail_in_one_line(target):
        watch(target, interval_s, count)


def register_operating(app: typer.Typer) -> None:
    """Add the operator's commands."""
    app.add_typer(scheduler_app, name="scheduler")
    app.command()(requests)
    app.command()(top)
