"""Makes the chosen scheduler from its name and options."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from schedulers.interface import Scheduler
from schedulers.registry import find


class BadOptions(ValueError):
    """The strategy has no such option, or not with that value."""


def make_scheduler(name: str, options: Mapping[str, Any]) -> Scheduler:
    """Raises UnknownScheduler or BadOptions with one line for people."""
    found = find(name)
    known = {field.name for field in fields(found.Options)}
    unknown = sorted(options.keys() - known)
    if unknown:
        there = ", ".join(sorted(known)) or "none"
        raise BadOptions(f"scheduler {name!r} has no option {unknown[0]!r}; it has: {there}")
    try:
        scheduler: Scheduler = found(TypeAdapter(found.Options).validate_python(dict(options)))
    except ValidationError as error:
        raise BadOptions(f"scheduler {name!r}: {_first_fault(error)}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a plug-in does: it must not end the engine
        raise BadOptions(f"scheduler {name!r} cannot be made: {error!r}") from error
    return scheduler


def _first_fault(error: ValidationError) -> str:
    """Option, what is wrong with it, and the value, where pydantic found it; the strategy's
    own words where a check of its own did."""
    first = error.errors()[0]
    own = first.get("ctx", {}).get("error")
    if isinstance(own, Exception):
        return str(own)
    where = ".".join(map(str, first["loc"])) or "options"
    return f"{where} is {first['input']!r}: {first['msg']}"
