"""What a scenario came to, for people."""

from collections.abc import Sequence
from math import isnan
from statistics import median

from rich import box
from rich.table import Table

from bench.overload.rounds import Course, Turn


def table(course: Course) -> Table:
    """A line for each figure, a column for each variant and part: medians over the rounds,
    with least and most where there are several."""
    found = Table(box=box.MARKDOWN)
    found.add_column("")
    columns = by_variant(course.turns)
    for heading in columns:
        found.add_column(heading, justify="right")
    for name in course.turns[0].figures:
        values = ([turn.figures[name] for turn in turns] for turns in columns.values())
        found.add_row(label(name), *(_cell(name, cell) for cell in values))
    return found


def heading(course: Course) -> str:
    """What was measured, on what, and how much of it."""
    capacity, effort = course.capacity, course.effort
    return (
        f"{course.scenario}: {course.title}\n"
        f"{course.service}; capacity {capacity.requests_per_s:.2f} requests/s, served in "
        f"{capacity.served_s:.2f} s; load for {course.length.seconds:.0f} s "
        f"({course.length.why}), seed {effort.seed}, rounds {effort.rounds}"
    )


def by_variant(turns: Sequence[Turn]) -> dict[str, list[Turn]]:
    """Turns of all rounds by what they measured."""
    found: dict[str, list[Turn]] = {}
    for turn in turns:
        found.setdefault(f"{turn.variant} {turn.part}".strip(), []).append(turn)
    return found


def label(name: str) -> str:
    """A figure's name with its unit."""
    words = name.replace("_", " ")
    if name.endswith("_per_s"):
        return f"{words.removesuffix(' per s')}/s"
    if name.endswith("_share"):
        return f"{words.removesuffix(' share')}, %"
    if name.endswith("_s"):
        return f"{words.removesuffix(' s')}, ms"
    return words


def shown(name: str, value: float) -> str:
    """A figure's value in its unit."""
    if isnan(value):
        return "-"
    if name.endswith("_per_s"):
        return f"{value:.1f}"
    if name.endswith("_share"):
        return f"{100 * value:.1f}"
    if name.endswith("_s"):
        return f"{1000 * value:.0f}"
    if name.endswith(("_ratio", "_mean")) or "_over_" in name:
        return f"{value:.2f}"
    return f"{value:.0f}"


def _cell(name: str, values: Sequence[float]) -> str:
    middle = shown(name, median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({shown(name, min(values))} - {shown(name, max(values))})"
