"""What only an extra installs, or a line that says which."""

import importlib
from types import ModuleType


class MissingExtra(Exception):
    """A command needs packages that are not installed; one line for people."""


def plots() -> ModuleType:
    """`bench.plots`. Raises MissingExtra."""
    try:
        return importlib.import_module("bench.plots")
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise MissingExtra("needs the extra `bench`: pip install '.[bench]'") from error
