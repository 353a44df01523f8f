"""Makes the chosen scheduler from its name and options."""

from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from schedulers.interface import Scheduler
from schedulers.registry import find


class BadOptions(ValueError):
    """The strategy has no such option, or not with that value."""


def make_scheduler(name: str, options: dict[str, Any]) -> Scheduler:
    """Raises UnknownScheduler or BadOptions with one line for people."""
    found = find(name)
    known = {field.name for field in fields(found.Options)}
    unknown = sorted(options.keys() - known)
    if unknown:
        there = ", ".join(sorted(known)) or "none"
        raise BadOptions(f"scheduler {name!r} has no option {unknown[0]!r}; it has: {there}")
    try:
        chosen = TypeAdapter(found.Options).validate_python(options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "options"
        raise BadOptions(f"scheduler {name!r}: {where}: {first['msg']}") from error
    scheduler: Scheduler = found(chosen)
    return scheduler
