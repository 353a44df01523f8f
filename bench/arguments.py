"""Types of numbers on the command line, for argparse."""

from argparse import ArgumentTypeError
from math import isfinite


def positive(text: str) -> float:
    """A number above 0."""
    return _above(text, 0.0)


def error_share(text: str) -> float:
    """By how much a cost is wrong: what is left of it must be above 0."""
    return _above(text, -1.0)


def count(text: str) -> int:
    """A whole number of at least 1."""
    try:
        found = int(text)
    except ValueError:
        found = 0
    if found < 1:
        raise ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return found


def _above(text: str, least: float) -> float:
    try:
        found = float(text)
    except ValueError:
        found = least
    if not (isfinite(found) and found > least):
        raise ArgumentTypeError(f"{text!r} is no number above {least:g}")
    return found
