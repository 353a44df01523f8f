"""What the engine said of itself, added up since the server started."""

from collections.abc import Callable

from service.messages import StepStats
from service.outbox import merge_stats


class Statistics:
    """`total` has the gauges of now and the counters of all engines so far."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.total = StepStats()
        self.scheduler = ""
        self._clock = clock
        self._started_s = clock()

    @property
    def uptime_s(self) -> float:
        """Since the server started."""
        return self._clock() - self._started_s

    def step(self, stats: StepStats) -> None:
        """A step message of the engine, or the gauges of one that just started or ended."""
        self.total = merge_stats(self.total, stats)
