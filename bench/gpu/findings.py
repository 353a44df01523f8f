"""What a part of the GPU check found: figures, gates and faults."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

State = Literal["ok", "FAILED", "SKIPPED", "PARTIAL", "left out"]


class Skipped(Exception):
    """A part cannot run here; the message is one line."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What a figure is hoped to reach. Told, never enforced."""

    limit: float
    least: bool  # else the limit is the most

    def met(self, value: float) -> bool:
        """Whether the value reaches it."""
        return value >= self.limit if self.least else value <= self.limit


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number. `unit` is empty for counts and shares."""

    name: str
    value: float
    unit: str = ""
    gate: Gate | None = None

    @property
    def met(self) -> bool | None:
        """Whether its gate is met, where it has one."""
        return None if self.gate is None else self.gate.met(self.value)


@dataclass(slots=True)
class Findings:
    """Filled by a part as it runs. `left_s` says how much is left of the part's time: one
    that has several things to measure stops in between when it is over, and is `partial`."""

    left_s: Callable[[], float] = lambda: math.inf
    say: Callable[[str], None] = lambda line: None
    figures: list[Figure] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    details: dict[str, object] = field(default_factory=dict)
    checks: int = 0
    partial: bool = False

    def figure(self, name: str, value: float, unit: str = "", gate: Gate | None = None) -> None:
        """A number for the table."""
        self.figures.append(Figure(name, float(value), unit, gate))

    def expect(self, holds: bool, fault: str) -> None:
        """Count a check, and keep the fault where it does not hold."""
        self.checks += 1
        if not holds:
            self.faults.append(fault)

    def note(self, line: str) -> None:
        """Something that the reader of the table has to know."""
        self.notes.append(line)

    def out_of_time(self, what: str) -> bool:
        """Whether the part's time is over; what is not measured for it is noted."""
        if self.left_s() > 0:
            return False
        self.partial = True
        self.note(f"out of time before {what}")
        return True


@dataclass(slots=True)
class Outcome:
    """How a part went. `why` for all that is not ok, in one line; `trace` of what it
    raised."""

    part: str
    half: str
    state: State
    seconds: float
    findings: Findings
    why: str = ""
    trace: str = ""
