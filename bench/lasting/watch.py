"""Looks at a strategy while it is simulated: what its plans cost and what it keeps."""

from statistics import median
from typing import Any, ClassVar

from bench.conformance.reach import reachable
from bench.conformance.weighed import Weighed
from schedulers.interface import ALWAYS, Plan, Promise, Scheduler, Snapshot

EVERY = 61  # plans: counting the calls of all would take most of a run


class Watch:
    """Asks `inner`, and counts the calls that each `EVERY`th plan makes."""

    Options: ClassVar[type[Any]] = object
    promises: ClassVar[frozenset[Promise]] = ALWAYS

    def __init__(self, inner: Scheduler) -> None:
        self._inner = inner
        self._weighed = Weighed(inner)
        self._plans = 0
        self._calls: list[tuple[float, float]] = []

    def plan(self, snap: Snapshot) -> Plan:
        self._plans += 1
        if self._plans % EVERY:
            return self._inner.plan(snap)
        found: list[Plan] = []
        calls = self._weighed.during(lambda: found.append(self._weighed.plan(snap)))
        self._calls.append((snap.now_s, calls))
        return found[0]

    @property
    def held(self) -> int:
        """Objects that the strategy holds on to."""
        return reachable(self._inner)

    def calls(self, from_s: float, until_s: float) -> float:
        """Calls of a plan in that time, the median; 0 where none was counted."""
        found = [calls for at_s, calls in self._calls if from_s <= at_s < until_s]
        return median(found) if found else 0.0
