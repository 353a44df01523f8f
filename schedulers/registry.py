"""Finds a strategy by built-in name, entry point or `package.module:Class`."""

from dataclasses import is_dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

BUILT_IN = {
    "fcfs": "schedulers.fcfs:FCFS",
    "static": "schedulers.static:Static",
    "priority": "schedulers.priority:Priority",
    "swap": "schedulers.swap:Swap",
    "fair": "schedulers.fair:Fair",
    "shortest": "schedulers.shortest:Shortest",
    "cache": "schedulers.cache:Cache",
    "deadline": "schedulers.deadline:Deadline",
}
GROUP = "walkway.schedulers"


class UnknownScheduler(ValueError):
    """No strategy of that name can be loaded."""


def available() -> dict[str, str]:
    """What there is: name -> "module:Class". A built-in name hides an entry point's."""
    return _entry_points() | BUILT_IN


def find(name: str) -> type[Any]:
    """The class that satisfies `schedulers.interface.Scheduler`.

    Raises UnknownScheduler, naming what there is, when nothing is found, the import fails
    or what it gives is no strategy.
    """
    there = available()
    target = there.get(name) or (name if ":" in name else None)
    if target is None:
        known = ", ".join(sorted(there))
        raise UnknownScheduler(f"scheduler {name!r} is unknown; there are: {known}")
    module, _, attribute = target.partition(":")
    if not module or not attribute:
        raise UnknownScheduler(f"scheduler {name!r} is not of the form package.module:Class")
    try:
        found = getattr(import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a plug-in's module does when it is imported
        why = str(error) if isinstance(error, Exception) else repr(error)
        raise UnknownScheduler(f"scheduler {name!r} cannot be loaded: {why}") from error
    missing = [part for part in ("Options", "promises", "plan") if not hasattr(found, part)]
    if missing:
        raise UnknownScheduler(f"scheduler {name!r} lacks {', '.join(missing)}")
    if not is_dataclass(found.Options):
        raise UnknownScheduler(f"scheduler {name!r} has Options that are no dataclass")
    return found  # type: ignore[no-any-return]


def _entry_points() -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=GROUP)}
