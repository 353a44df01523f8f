"""A strategy's options for people."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from schedulers.interface import Scheduler


def shown_options(scheduler: Scheduler, options: Mapping[str, Any]) -> dict[str, Any]:
    """All of the strategy's options, defaults included, as plain values. `options` are those
    that it was made with."""
    adapter = TypeAdapter(scheduler.Options)
    chosen = adapter.validate_python(dict(options))
    shown: dict[str, Any] = adapter.dump_python(chosen, mode="json")
    return shown
