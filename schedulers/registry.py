"""Finds a strategy by built-in name, entry point or `package.module:Class`."""

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

BUILT_IN = {
    "fcfs": "schedulers.fcfs:FCFS",
    "static": "schedulers.static:Static",
}
GROUP = "walkway.schedulers"


class UnknownScheduler(ValueError):
    """No strategy of that name can be loaded."""


def find(name: str) -> type[Any]:
    """The class that satisfies `schedulers.interface.Scheduler`.

    Raises UnknownScheduler, naming what there is, when nothing is found or the import
    fails.
    """
    target = BUILT_IN.get(name) or _entry_points().get(name) or (name if ":" in name else None)
    if target is None:
        known = ", ".join(sorted(BUILT_IN.keys() | _entry_points().keys()))
        raise UnknownScheduler(f"scheduler {name!r} is unknown; there are: {known}")
    module, _, attribute = target.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UnknownScheduler(f"scheduler {name!r} cannot be loaded: {error}") from error
    missing = [part for part in ("Options", "promises", "plan") if not hasattr(found, part)]
    if missing:
        raise UnknownScheduler(f"scheduler {name!r} lacks {', '.join(missing)}")
    return found  # type: ignore[no-any-return]


def _entry_points() -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=GROUP)}
