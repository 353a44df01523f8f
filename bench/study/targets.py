"""What the strategies are to reach, as checks of a matrix."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from bench.study.cells import Cell
from bench.study.matrix import Matrix
from bench.study.scenarios import ALONE, BOUND, IDLE

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Target:
    """A figure of a strategy, divided by that of `against` on the same ground at the same load
    where there is one, is to be at least `limit`, or at most. Loads below `from_load` do not
    count."""

    title: str
    scenario: str
    strategy: str
    figure: str
    limit: float
    against: str | None = None
    at_most: bool = False
    from_load: float = 0.0

    def holds(self, ratio: float) -> bool:
        """Whether a cell of this ratio reaches it."""
        if self.at_most:
            return ratio <= self.limit + ROUNDING
        return ratio >= self.limit - ROUNDING


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a target: how many cells of how many reached it, the worst ratio and where
    it was. None of no cells: nothing was measured."""

    target: Target
    reached: int
    cells: int
    worst: float
    where: str

    @property
    def passed(self) -> bool:
        return self.reached == self.cells > 0


def _throughput(strategy: str) -> Target:
    title = f"{strategy}: output tokens/s within 5 % of fcfs"
    return Target(title, "throughput", strategy, "output_tokens_per_s", 0.95, "fcfs")


def _as_many(scenario: str) -> Target:
    title = f"deadline: as many met as fcfs ({scenario})"
    return Target(title, scenario, "deadline", "deadlines_met", 1.0, "fcfs")


TARGETS = (
    Target(
        "priority: urgent p95 at most twice that of one after another",
        *("urgent", "priority", "urgent_ttft_p95_s", 2.0, IDLE),
        at_most=True,
    ),
    Target(
        "priority: urgent p95 at most twice that of the urgent alone",
        *("urgent", "priority", "urgent_ttft_p95_s", 2.0, ALONE),
        at_most=True,
    ),
    Target(
        "priority: the others have a tenth of the tokens, always",
        *("urgent", "priority", "others_share", 0.1),
    ),
    *map(_as_many, ("deadlines", "untold", "dear", "cheap")),
    Target(
        "deadline: twice as many as fcfs from 1.5 on",
        *("deadlines", "deadline", "deadlines_met", 2.0, "fcfs"),
        from_load=1.5,
    ),
    Target(
        "deadline: 85 % of the bound",
        *("deadlines", "deadline", "deadlines_met", 0.85, BOUND),
    ),
    Target(
        "deadline: as many streams in time as fcfs",
        *("streams", "deadline", "streams_met", 1.0, "fcfs"),
    ),
    *map(_throughput, ("priority", "deadline", "fair", "shortest", "cache", "swap")),
    Target(
        "priority: urgent p95 as short as sglang-priority's",
        *("urgent", "priority", "urgent_ttft_p95_s", 1.0, "sglang-priority"),
        at_most=True,
    ),
    Target(
        "shortest: mean completion as short as mlfq's",
        *("throughput", "shortest", "mean_completion_s", 1.0, "mlfq"),
        at_most=True,
    ),
    Target(
        "cache: as many prompt tokens cached as sglang-lpm",
        *("throughput", "cache", "cached", 1.0, "sglang-lpm"),
    ),
    # From twice the capacity on both tenants ask for more than half of it.
    Target(
        "fair: service apart as little as vtc's within 1 %, from 2 on",
        *("shares", "fair", "service_difference", 1.01, "vtc"),
        at_most=True,
        from_load=2.0,
    ),
)


def verdicts(matrix: Matrix, targets: tuple[Target, ...] = TARGETS) -> Iterator[Verdict]:
    """A verdict for each target."""
    for target in targets:
        ratios = list(_ratios(matrix, target))
        reached = sum(target.holds(ratio) for ratio, _ in ratios)
        worst, where = (max if target.at_most else min)(ratios, default=(0.0, "not measured"))
        yield Verdict(target, reached, len(ratios), worst, where)


def _ratios(matrix: Matrix, target: Target) -> Iterator[tuple[float, str]]:
    for cell, found in matrix.outcomes.items():
        if (cell.scenario, cell.strategy) != (target.scenario, target.strategy):
            continue
        value = getattr(found, target.figure)
        other = _against(matrix, target, cell)
        if value is None or other is None or cell.load < target.from_load:
            continue
        if value or other:  # two that are 0 tell nothing
            yield value / other if other else inf, f"{cell.ground.name} at {cell.load:g}"


def _against(matrix: Matrix, target: Target, cell: Cell) -> float | None:
    if target.against is None:
        return 1.0
    for other, found in matrix.outcomes.items():
        same_load = other.load == cell.load or target.against == IDLE
        if (
            (other.ground, other.scenario, other.strategy)
            == (cell.ground, cell.scenario, target.against)
        ) and same_load:
            value: float | None = getattr(found, target.figure)
            return value
    return None
