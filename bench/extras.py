"""Modules whose packages a plain install does not have, or a line that names the package."""

import importlib
from types import ModuleType


class MissingExtra(Exception):
    """A command needs a package that is not installed; one line for people."""


def plots() -> ModuleType:
    """`bench.plots`. Raises MissingExtra."""
    return _module("bench.plots", needs="matplotlib")


def simulation_pictures() -> ModuleType:
    """`bench.simulation.pictures`. Raises MissingExtra."""
    return _module("bench.simulation.pictures", needs="matplotlib")


def study_plots() -> ModuleType:
    """`bench.study.plots`. Raises MissingExtra."""
    return _module("bench.study.plots", needs="matplotlib")


def conformance() -> ModuleType:
    """`bench.conformance.kit`. Raises MissingExtra."""
    return _module("bench.conformance.kit", needs="hypothesis")


def _module(name: str, needs: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != needs:
            raise
        # Not `walkway[bench]`: walkway is on no index, and its own folder may be anywhere.
        raise MissingExtra(f"{needs} is not installed: pip install {needs}") from error
