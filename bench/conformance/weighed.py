"""What a plan costs, on any machine: the calls that it makes."""

import sys
from collections.abc import Callable
from statistics import median
from types import FrameType
from typing import Any, ClassVar

from schedulers.interface import ALWAYS, Plan, Promise, Scheduler, Snapshot


class Weighed:
    """Asks `inner`, and counts calls, into C too, while it is told to. A loop that calls
    nothing weighs nothing."""

    Options: ClassVar[type[Any]] = object
    promises: ClassVar[frozenset[Promise]] = ALWAYS

    def __init__(self, inner: Scheduler) -> None:
        self._inner = inner
        self._counting = False
        self._counts: list[int] = []
        self._calls = 0

    def plan(self, snap: Snapshot) -> Plan:
        if not self._counting:
            return self._inner.plan(snap)
        self._calls = 0
        before = sys.getprofile()
        sys.setprofile(self._count)
        try:
            return self._inner.plan(snap)
        finally:
            sys.setprofile(before)
            self._counts.append(self._calls)

    def during(self, run: Callable[[], object]) -> float:
        """Calls of a plan in a run, the median."""
        self._counting, self._counts = True, []
        run()
        self._counting = False
        return median(self._counts)

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        self._calls += event in ("call", "c_call")
