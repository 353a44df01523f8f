"""The `walkway` command: the service and its command-line client.

Each command imports what it uses when it runs, so that `--help` and the client start at
once. Exit codes: 0 done, 1 the service said no or was not there, 2 a mistake in the call.
"""

from typing import Annotated

import typer

from cli.advising import register_advising
from cli.client import register_client
from cli.operating import register_operating
from cli.plugins import register_plugins
from cli.serving import register_serving
from cli.simulation import register_simulation
from cli.usage import OneLine

app = typer.Typer(
    name="walkway",
    cls=OneLine,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def walkway(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show it and exit.")] = False,
) -> None:
    """Serve a decoder language model over gRPC, and talk to it."""
    if version:
        from importlib import metadata

        print(f"walkway {metadata.version('walkway')}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
    else:
        return
    raise typer.Exit


register_serving(app)
register_client(app)
register_operating(app)
register_plugins(app)
register_simulation(app)
register_advising(app)


def main() -> None:
    """Entry of the `walkway` command."""
    app(prog_name="walkway")


if __name__ == "__main__":
    main()
