"""A mistake in a call is one line on stderr and exit code 2."""

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

USAGE_ERROR: type[typer.BadParameter] = typer.BadParameter.__mro__[1]
"""What typer raises for every mistake, and does not export."""


class OneLine(TyperGroup):
    """The commands, with typer's boxes of an error left out."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            code = super().main(
                args, prog_name, complete_var, False, windows_expand_args, **extra
            )
        except USAGE_ERROR as error:
            command = error.ctx.command_path if error.ctx else "walkway"
            line = " ".join(error.format_message().split()).removesuffix(".")
            print(f"walkway: {line}; see `{command} --help`", file=sys.stderr)
            code = 2
        except typer.Abort:
            code = 1
        if standalone_mode:
            sys.exit(code)
        return code
