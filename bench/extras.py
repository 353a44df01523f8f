"""What only an extra installs, or a line that says which."""

import importlib
from types import ModuleType


class MissingExtra(Exception):
    """A command needs packages that are not installed; one line for people."""


def plots() -> ModuleType:
    """`bench.plots`. Raises MissingExtra."""
    return _module("bench.plots", needs="matplotlib")


def simulation_pictures() -> ModuleType:
    """`bench.simulation.pictures`. Raises MissingExtra."""
    return _module("bench.simulation.pictures", needs="matplotlib")


def conformance() -> ModuleType:
    """`bench.conformance.kit`. Raises MissingExtra."""
    return _module("bench.conformance.kit", needs="hypothesis")


def _module(name: str, needs: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != needs:
            raise
        raise MissingExtra("needs the extra `bench`: pip install '.[bench]'") from error
