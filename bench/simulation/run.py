"""A simulated run. Times are seconds of the virtual clock, which starts at 0."""

from collections import Counter
from dataclasses import dataclass, field

import msgspec

from bench.simulation.record import Record
from service.messages import StepStats

MOST_GAUGES = 4000


class Gauge(msgspec.Struct, frozen=True, array_like=True):
    """The engine after a step. `preemptions` counts from the start."""

    at_s: float
    running: int
    waiting: int
    swapped: int
    held_pages: int
    used_slots: int
    preemptions: int


@dataclass(slots=True)
class Waste:
    """Slots of held pages that hold no token. `share` weighs every slot and second alike,
    `peak` is the largest share after any step."""

    held: float = 0.0
    unused: float = 0.0
    peak: float = 0.0

    def add(self, held_slots: int, used_slots: int, seconds: float) -> None:
        """So it was for so long."""
        if held_slots:
            unused = held_slots - used_slots
            self.held += held_slots * seconds
            self.unused += unused * seconds
            self.peak = max(self.peak, unused / held_slots)

    @property
    def share(self) -> float:
        return self.unused / self.held if self.held else 0.0


@dataclass(slots=True)
class Totals:
    """Counters of a run."""

    steps: int = 0
    rows: int = 0
    busy_s: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    recomputed_tokens: int = 0
    swapped_pages: int = 0
    preemptions: int = 0
    short_rows: int = 0
    plan_faults: int = 0
    peak_pages: int = 0
    evictions: Counter[str] = field(default_factory=Counter)

    def add(self, stats: StepStats) -> None:
        """A step's counters."""
        self.steps += stats.steps
        self.rows += stats.rows
        self.input_tokens += stats.input_tokens
        self.output_tokens += stats.output_tokens
        self.recomputed_tokens += stats.recomputed_tokens
        self.swapped_pages += stats.swapped_pages
        self.preemptions += stats.preemptions
        self.short_rows += stats.short_rows
        self.plan_faults += stats.plan_faults
        self.peak_pages = max(self.peak_pages, stats.held_pages)
        if stats.evictions:
            self.evictions.update(stats.evictions)


class Gauges:
    """Gauges of at most `MOST_GAUGES` steps, evenly many steps apart: every second one goes
    when they become too many."""

    def __init__(self) -> None:
        self.kept: list[Gauge] = []
        self._stride = 1
        self._steps = 0

    def add(self, at_s: float, stats: StepStats, preemptions: int) -> None:
        """A step ended."""
        self._steps += 1
        if self._steps % self._stride:
            return
        pages, slots = stats.held_pages, stats.used_slots
        counts = (stats.running, stats.waiting, stats.swapped)
        self.kept.append(Gauge(at_s, *counts, pages, slots, preemptions))
        if len(self.kept) == MOST_GAUGES:
            del self.kept[::2]
            self._stride *= 2


@dataclass(slots=True)
class Run:
    """One load under one strategy. `ended_s` is when the last request did."""

    label: str
    records: list[Record]
    gauges: list[Gauge]
    totals: Totals
    waste: Waste
    ended_s: float
    faults: list[str] = field(default_factory=list)
