"""A strategy's options for people."""

from collections.abc import Mapping
from typing import Any

import msgspec
from pydantic import TypeAdapter

from schedulers.interface import Scheduler
from service.strategy import BadOptions


def shown_options(scheduler: Scheduler, options: Mapping[str, Any]) -> dict[str, Any]:
    """All of the strategy's options, defaults included, as plain values. `options` are those
    that it was made with. Raises BadOptions where the front end could not be told."""
    adapter = TypeAdapter(scheduler.Options)
    chosen = adapter.validate_python(dict(options))
    shown: dict[str, Any] = adapter.dump_python(chosen, mode="json")
    try:
        msgspec.msgpack.encode(shown)
    except (OverflowError, TypeError) as error:
        raise BadOptions(f"options that cannot be shown: {error}") from error
    return shown
