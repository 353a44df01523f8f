"""Shows the settings, and where each value comes from."""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from cli.as_json import print_json
from models.sizes import in_units
from service.config import ConfigError, did_you_mean, explain_settings
from service.provenance import Setting

SHORT = {"seconds": "s", "milliseconds": "ms"}


def show_settings(
    names: Sequence[str], config: Path | None, assignments: Sequence[str], as_json: bool
) -> int:
    """Exit code: 0, or 2 for sources that cannot be read or a name that is none."""
    try:
        found = list(_chosen(explain_settings(config, assignments), names))
    except ConfigError as error:
        print(f"walkway: {error}", file=sys.stderr)
        return 2
    if as_json:
        print_json([_plain(setting) for setting in found])
    else:
        _show(found)
    return 0


def _chosen(settings: Sequence[Setting], names: Sequence[str]) -> Iterable[Setting]:
    """Those of that name, or of that group; all without a name. Raises ConfigError."""
    groups = {setting.name.partition(".")[0] for setting in settings}
    for name in names:
        if name not in groups and all(setting.name != name for setting in settings):
            raise ConfigError(f"no setting or group {name}{did_you_mean(name)}")
    wanted = set(names)
    for setting in settings:
        if not wanted or wanted & {setting.name, setting.name.partition(".")[0]}:
            yield setting


def _show(settings: Iterable[Setting]) -> None:
    console = Console(highlight=False)
    for setting in settings:
        changed = setting.source != "default"
        line = Text(
            f"{setting.name} = {_value(setting, setting.value)}", "bold" if changed else ""
        )
        line.append(f"  # {_origin(setting)}", "green" if changed else "dim")
        console.print(line, soft_wrap=True)
        if setting.description:
            console.print(Padding(Text(setting.description, "dim"), (0, 0, 0, 4)))


def _origin(setting: Setting) -> str:
    if setting.source == "default":
        return "default"
    return f"{setting.source} (default: {_value(setting, setting.default)})"


def _value(setting: Setting, value: object) -> str:
    """As it may be given, with its unit where the number alone says less."""
    if value is None:
        return "absent"
    if isinstance(value, bool | str) or not isinstance(value, int | float):
        return json.dumps(value)
    if setting.unit == "bytes":
        return in_units(int(value))
    unit = SHORT.get(setting.unit or "", setting.unit)
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{shown} {unit}" if unit else shown


def _plain(setting: Setting) -> dict[str, object]:
    return {
        "name": setting.name,
        "value": _json_value(setting.value),
        "default": _json_value(setting.default),
        "source": setting.source,
        "unit": setting.unit,
        "description": setting.description,
    }


def _json_value(value: object) -> object:
    """JSON has no infinity: as a setting spells it."""
    return "inf" if value == math.inf else value
