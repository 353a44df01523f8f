"""Runs a strategy on a load that lasts, and says where it does not hold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.lasting.load import TURNS
from bench.lasting.thirds import Third, thirds
from bench.lasting.watch import Watch
from bench.simulation.choice import Choice
from bench.simulation.demand import Load
from bench.simulation.engine import Stalled, simulate
from bench.simulation.profile import Profile
from bench.simulation.run import Run
from schedulers.interface import Scheduler

DECAY = 2.0
SMALL = 0.05  # of a class that had less, a few requests are much
CHANCE = 3.0  # standard deviations of the number of requests
GROWTH, SPARE_CALLS = 1.5, 200.0
HELD, SPARE_OBJECTS = 0.1, 1000  # for each request that has ended; bounded memories


@dataclass(frozen=True, slots=True)
class Verdict:
    """A run of a strategy. `calls` are those of a plan by thirds, medians; `held` the objects
    that the strategy keeps after all requests have ended. It holds where there are no
    `faults`."""

    strategy: str
    cost_error: float
    thirds: Sequence[Third]
    calls: Sequence[float]
    held: int
    faults: Sequence[str]


def judge(load: Load, profile: Profile, strategy: str, cost_error: float) -> Verdict:
    """Simulate it to its end."""
    watches: list[Watch] = []

    def wrap(scheduler: Scheduler) -> Scheduler:
        watches.append(Watch(scheduler))
        return watches[-1]

    choice = Choice(strategy, strategy, wrap=wrap)
    try:
        run = simulate(load, profile, choice, cost_error=cost_error)
    except Stalled as error:
        return Verdict(strategy, cost_error, (), (), 0, (str(error),))
    from_s = run.records[len(run.records) // TURNS].at_s
    found, (watch,) = thirds(run.records, from_s), watches
    calls = [watch.calls(third.from_s, third.until_s) for third in found]
    faults = [
        *_plan_faults(run),
        *_decayed(found[0], found[-1]),
        *_grown(calls),
        *_hoarded(watch.held, len(run.records)),
    ]
    return Verdict(strategy, cost_error, found, calls, watch.held, faults)


def _plan_faults(run: Run) -> Iterator[str]:
    if run.faults:
        yield f"{len(run.faults)} plans were faulty, the first: {run.faults[0]}"


def _decayed(first: Third, last: Third) -> Iterator[str]:
    for name, before in first.parts.items():
        after = last.parts[name]
        for what, was, became in (
            ("answered", before.answered, after.answered),
            ("tokens", before.tokens, after.tokens),
        ):
            by_chance = CHANCE * (was / max(1, before.requests)) ** 0.5
            if was >= SMALL and became * DECAY < was and was - became > by_chance:
                yield f"{name}: {what} fell from {was:.0%} to {became:.0%}"


def _grown(calls: Sequence[float]) -> Iterator[str]:
    if calls[-1] > GROWTH * calls[0] + SPARE_CALLS:
        yield f"a plan made {calls[0]:.0f} calls at first, {calls[-1]:.0f} at last"


def _hoarded(held: int, ended: int) -> Iterator[str]:
    if held > HELD * ended + SPARE_OBJECTS:
        yield f"{held} objects are held after {ended} requests have ended"
