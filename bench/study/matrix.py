"""Runs cells in parallel processes, except those whose results are kept."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from bench.simulation.parallel import Workers
from bench.study.cells import Cell, Ground
from bench.study.measure import capacity, measure, provenance
from bench.study.outcome import Outcome
from bench.study.scenarios import IDLE, Scenario
from bench.study.store import Line, Store


@dataclass(frozen=True, slots=True)
class Matrix:
    """What was run. Loads are multiples of the capacities, which are speed-ups of a trace."""

    capacities: dict[Ground, float]
    outcomes: dict[Cell, Outcome]


def cells(
    grounds: Sequence[Ground],
    scenarios: Sequence[Scenario],
    loads: Sequence[float],
    strategies: Sequence[str] = (),
) -> Iterator[Cell]:
    """The matrix; `strategies` leaves out others where it names any. Requests one after
    another have no load: they are run once."""
    for ground, one in product(grounds, scenarios):
        for strategy in one.strategies:
            if strategies and strategy not in strategies:
                continue
            for load in loads[:1] if strategy == IDLE else loads:
                yield Cell(ground, one.name, strategy, load)


def run(
    chosen: Sequence[Cell],
    store: Store,
    workers: Workers,
    progress: Callable[[str, int, int], object],
) -> Matrix:
    """All results, each kept as soon as it is there. `progress` hears what is run, how many of
    it are done, and of how many."""
    grounds = list(dict.fromkeys(cell.ground for cell in chosen))
    capacities = _capacities(grounds, store, workers, progress)
    outcomes: dict[Cell, Outcome] = {}
    missing: list[tuple[Cell, float]] = []
    for cell in chosen:
        kept = store.outcome(cell, provenance(cell))
        if kept is None:
            missing.append((cell, capacities[cell.ground]))
        else:
            outcomes[cell] = kept
    for number, ((cell, _), found) in enumerate(workers.each(_measure, missing), start=1):
        store.add(Line(cell.ground, provenance(cell), cell, found))
        outcomes[cell] = found
        progress("cells", number, len(missing))
    return Matrix(capacities, outcomes)


def _capacities(
    grounds: Sequence[Ground],
    store: Store,
    workers: Workers,
    progress: Callable[[str, int, int], object],
) -> dict[Ground, float]:
    kept = {ground: store.capacity(ground, provenance(ground)) for ground in grounds}
    found = {ground: value for ground, value in kept.items() if value is not None}
    missing = [ground for ground in grounds if ground not in found]
    for number, (ground, value) in enumerate(workers.each(capacity, missing), start=1):
        store.add(Line(ground, provenance(ground), capacity=value))
        found[ground] = value
        progress("capacities", number, len(missing))
    return found


def _measure(task: tuple[Cell, float]) -> Outcome:
    return measure(*task)
