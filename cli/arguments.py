"""Arguments that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

from cli.completion import complete_setting
from cli.target import ADMIN, SERVICE

Port = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Over that of --target.", metavar="PORT")
]
Target = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", help="The service; also a URL, a host or :port."),
]
AdminTarget = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", help="Its admin address; also a URL, a host or :port."),
]
TARGET, ADMIN_TARGET = SERVICE.default, ADMIN.default

Config = Annotated[Path | None, typer.Option(help="TOML file; also WALKWAY_CONFIG.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="GROUP.FIELD=VALUE",
        autocompletion=complete_setting,
        help="Over file and environment; repeatable. `walkway settings` lists all.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
