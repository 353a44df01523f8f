"""Writes the study as JSON."""

from pathlib import Path

import msgspec

from bench.study.cells import Cell, Ground
from bench.study.matrix import Matrix
from bench.study.outcome import Outcome
from bench.study.targets import verdicts


class Capacity(msgspec.Struct, frozen=True):
    """Speed-up of the trace."""

    ground: Ground
    speedup: float


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a cell came to."""

    cell: Cell
    outcome: Outcome


class Reached(msgspec.Struct, frozen=True):
    """A verdict on a target."""

    target: str
    passed: bool
    reached: int
    cells: int
    worst: float
    where: str


class Study(msgspec.Struct, frozen=True):
    """What study.json holds."""

    capacities: list[Capacity]
    results: list[Result]
    targets: list[Reached]


def save(matrix: Matrix, path: Path) -> None:
    """Write as JSON."""
    study = Study(
        [Capacity(ground, speedup) for ground, speedup in matrix.capacities.items()],
        [Result(cell, outcome) for cell, outcome in matrix.outcomes.items()],
        [
            Reached(v.target.title, v.passed, v.reached, v.cells, v.worst, v.where)
            for v in verdicts(matrix)
        ],
    )
    path.write_bytes(msgspec.json.format(msgspec.json.encode(study), indent=1) + b"\n")
