"""Runs the service in this process."""

import sys
from collections.abc import Sequence
from pathlib import Path

from service.config import ConfigError, load_settings


def serve(config: Path | None, assignments: Sequence[str]) -> int:
    """Exit code: 0 after a signal, 2 when it cannot start, 1 when the engine was lost."""
    try:
        settings = load_settings(config, assignments)
    except ConfigError as error:
        print(f"walkway: {error}", file=sys.stderr)
        return 2
    from service.app import main

    return main(settings, lambda: load_settings(config, assignments))
