"""A picture of each figure of the study over the load. Needs the extra `bench` (matplotlib)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bench.study.cells import Cell, Ground
from bench.study.matrix import Matrix
from bench.study.scenarios import ALONE, BOUND, IDLE, Figure, Scenario
from bench.study.table import value

REFERENCES = {ALONE: ("--", "grey"), IDLE: (":", "black"), BOUND: ("-", "black")}
MARKERS = "os^Dvx+*P<>"


def plot(
    matrix: Matrix, scenario: Scenario, figure: Figure, loads: Sequence[float], path: Path
) -> None:
    """A panel for each ground, traces side by side and machines below each other, a line for
    each strategy."""
    labels = list(dict.fromkeys(ground.label for ground in matrix.capacities))
    machines = list(dict.fromkeys((g.profile, g.rows) for g in matrix.capacities))
    size = (1.5 + 3.4 * len(labels), 0.8 + 2.5 * len(machines))
    picture, axes = plt.subplots(
        len(machines), len(labels), figsize=size, squeeze=False, constrained_layout=True
    )
    for unused in axes.flat:
        unused.set_axis_off()
    lines: dict[str, Any] = {}
    for ground in matrix.capacities:
        place = machines.index((ground.profile, ground.rows)), labels.index(ground.label)
        found = _panel(axes[place], matrix, ground, scenario, figure, loads)
        if found:
            axes[place].set_axis_on()
        lines |= found
    unit = f", {figure.unit}" * bool(figure.unit)
    picture.suptitle(f"{figure.title}{unit}\n{scenario.title}", fontsize="small")
    picture.supxlabel("load, multiples of the capacity", fontsize="small")
    picture.legend(lines.values(), lines, loc="outside right upper", fontsize="small")
    picture.savefig(path, dpi=90)
    plt.close(picture)


def _panel(
    axis: Any,
    matrix: Matrix,
    ground: Ground,
    scenario: Scenario,
    figure: Figure,
    loads: Sequence[float],
) -> dict[str, Any]:
    lines = {}
    for number, strategy in enumerate(scenario.strategies):
        points = []
        for load in loads:
            cell = Cell(ground, scenario.name, strategy, loads[0] if strategy == IDLE else load)
            found = value(figure, matrix.outcomes.get(cell))
            if found is not None:
                points.append((load, found))
        if points:
            style, colour = REFERENCES.get(strategy, ("-", f"C{number % 10}"))
            marker = None if strategy in REFERENCES else MARKERS[number % len(MARKERS)]
            (lines[strategy],) = axis.plot(
                *zip(*points, strict=True), style, color=colour, marker=marker, markersize=3.5
            )
    axis.set_title(ground.name, fontsize="small")
    axis.tick_params(labelsize="small")
    if figure.log:
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
    elif lines:
        axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    return lines
