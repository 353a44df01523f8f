"""Reads the settings: command line over environment over TOML file over defaults.

The only place that looks at the environment. Whatever is wrong is one line for people.
"""

import difflib
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsError,
)

from service.provenance import Setting, described, names
from service.settings import Settings

PREFIX = "WALKWAY_"
FILE_VARIABLE = "WALKWAY_CONFIG"
NESTED = "__"
"""What every setting's variable has. Kubernetes puts a dozen variables without it, such as
WALKWAY_PORT, into each pod beside a Service called walkway."""


class ConfigError(Exception):
    """A setting is unknown or has a bad value; one line for people."""


def load_settings(file: Path | None = None, assignments: Sequence[str] = ()) -> Settings:
    """The settings from all sources. `assignments` are `group.field=value`. Raises
    ConfigError."""
    return _load(file, assignments)[0]


def explain_settings(
    file: Path | None = None, assignments: Sequence[str] = ()
) -> list[Setting]:
    """The same, each with where it comes from. Raises ConfigError."""
    return list(described(*_load(file, assignments)))


def _load(
    file: Path | None, assignments: Sequence[str]
) -> tuple[Settings, dict[str, dict[str, Any]]]:
    """The settings, and the trees they were read from, strongest first."""
    _refuse_unknown_variables(os.environ)
    named = os.environ.get(FILE_VARIABLE)
    path = file or (Path(named) if named else None)
    sources = {"command line": _tree(assignments), "environment": dict[str, Any]()}
    from_file = _read(path) if path else {}
    if path:
        sources[f"file {path}"] = from_file

    class Sourced(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[Any, ...]:
            assert isinstance(env_settings, EnvSettingsSource)
            found = env_settings.env_vars.items()
            env_settings.env_vars = {name: text for name, text in found if NESTED in name}

            def environment() -> dict[str, Any]:
                sources["environment"].update(env_settings())
                return sources["environment"]

            return init_settings, environment, lambda: from_file

    try:
        settings = Sourced(**sources["command line"])
    except ValidationError as error:
        raise ConfigError(_first_line(error)) from error
    except SettingsError as error:
        raise ConfigError(f"environment: {error}") from error
    # A plain Settings crosses to the engine's process, which cannot import a local class.
    plain = {name: getattr(settings, name) for name in _groups()}
    return Settings.model_construct(**plain), sources


def _groups() -> list[str]:
    return list(Settings.model_fields)


def _refuse_unknown_variables(environ: Mapping[str, str]) -> None:
    # pydantic-settings only sees names inside a group, so a misspelt group would be ignored.
    for name in environ:
        group, nested, _ = name.removeprefix(PREFIX).lower().partition(NESTED)
        if name.startswith(PREFIX) and nested and group not in _groups():
            setting = name.removeprefix(PREFIX).replace(NESTED, ".").lower()
            meant = did_you_mean(
                setting, lambda near: PREFIX + near.upper().replace(".", NESTED)
            )
            raise ConfigError(
                f"environment variable {name}: unknown setting; groups are "
                + ", ".join(_groups())
                + meant
            )


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"config file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"config file {path}: {error}") from error


def _tree(assignments: Sequence[str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        *groups, field = name.strip().split(".")
        if not equals or not groups or not field:
            meant = did_you_mean(name.strip()) if equals and field else ""
            raise ConfigError(f"{assignment!r} is not of the form group.field=value{meant}")
        place = tree
        for group in groups:
            place = place.setdefault(group, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{assignment!r}: {group} has been given a value before")
        place[field] = read_value(value.strip())
    return tree


def read_value(text: str) -> Any:
    """As TOML has it; anything else is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _first_line(error: ValidationError) -> str:
    first, more = error.errors()[0], error.error_count() - 1
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"setting {name}: unknown{did_you_mean(name)}" + _and_more(more)
    why = first["msg"].removeprefix("Value error, ")
    return f"setting {name}: {why} (given: {first['input']!r})" + _and_more(more)


def did_you_mean(unknown: str, spelled: Callable[[str], str] = str) -> str:
    """The nearest setting or group, for the end of an error; empty where none is near. The
    right name in a wrong group is near, however unlike the groups are; without a group all
    are told."""
    group, _, field = unknown.rpartition(".")
    same = [name for name in names() if name.endswith("." + field)]
    near = same if not group else difflib.get_close_matches(unknown, same, n=1, cutoff=0)
    near = near or difflib.get_close_matches(unknown, [*names(), *_groups()], n=1)
    return f"; did you mean {' or '.join(map(spelled, near))}?" if near else ""


def _and_more(more: int) -> str:
    return f"; and {more} more" if more else ""
