"""The study as tables for a terminal of 80 columns."""

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from bench.study.cells import Cell
from bench.study.matrix import Matrix
from bench.study.outcome import Outcome
from bench.study.scenarios import Figure, Scenario
from bench.study.targets import verdicts


def capacities(matrix: Matrix) -> Table:
    """A line for each ground."""
    table = _table("capacity", "speed-up of the trace")
    for ground, speedup in matrix.capacities.items():
        table.add_row(ground.name, f"{speedup:.3g}")
    return table


def tables(
    matrix: Matrix, scenario: Scenario, loads: Sequence[float]
) -> Iterator[tuple[str, Table]]:
    """One for each figure of the scenario, with its title: a line for each ground and strategy,
    a column for each load."""
    for figure in scenario.figures:
        table = _table("", "", *(f"{load:g}" for load in loads))
        for ground in matrix.capacities:
            for index, strategy in enumerate(scenario.strategies):
                cells = [Cell(ground, scenario.name, strategy, load) for load in loads]
                found = [value(figure, matrix.outcomes.get(cell)) for cell in cells]
                if any(found):  # nothing has a cached prefix where the trace names none
                    name = "" if index else ground.name
                    table.add_row(name, strategy, *map(short, found))
        if table.row_count:
            yield title(scenario, figure), table


def title(scenario: Scenario, figure: Figure) -> str:
    """What a figure's table or picture shows."""
    unit = f", {figure.unit}" * bool(figure.unit)
    return f"{scenario.name}, {scenario.title}: {figure.title}{unit}"


def targets(matrix: Matrix) -> Table:
    """A line for each target that was measured: whether all its cells reached it, how many
    did, and the worst."""
    table = _table("target", "", "cells", "worst", "where")
    for verdict in verdicts(matrix):
        if verdict.cells:
            table.add_row(
                Text(verdict.target.title),
                Text("reached", "green") if verdict.passed else Text("MISSED", "red"),
                f"{verdict.reached}/{verdict.cells}",
                short(verdict.worst),
                verdict.where,
            )
    return table


def value(figure: Figure, outcome: Outcome | None) -> float | None:
    """The figure of an outcome, in its unit; None where it has none."""
    found = None if outcome is None else getattr(outcome, figure.name)
    return None if found is None else figure.scale * found


def short(found: float | None) -> str:
    """Three digits, and no exponent for what a person counts in."""
    if found is None:
        return "-"
    for least, digits in ((100, 0), (10, 1), (1, 2)):
        if abs(found) >= least:
            return f"{found:.{digits}f}"
    return f"{found:.3f}"


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < 2 else "right")
    return table
