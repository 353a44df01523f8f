"""Reads a scheduler's options from the command line."""

from collections.abc import Sequence
from typing import Any

from service.config import read_value
from service.strategy import BadOptions


def read_options(assignments: Sequence[str]) -> dict[str, Any]:
    """`option=value`, values as TOML has them, else strings. Raises BadOptions."""
    options = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise BadOptions(f"{assignment!r} is not of the form option=value")
        options[name.strip()] = read_value(value.strip())
    return options
