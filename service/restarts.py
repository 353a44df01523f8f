"""When a dead engine starts again, and when no more."""

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartLimits:
    """The first wait doubles with each death up to the longest; `max_deaths` within
    `window_s` are the end."""

    backoff_s: float
    backoff_max_s: float
    max_deaths: int
    window_s: float


class Restarts:
    """Deaths so far. An engine that served for `backoff_max_s` starts the waits anew."""

    def __init__(self, limits: RestartLimits) -> None:
        self._limits = limits
        self._deaths_s: deque[float] = deque()
        self._in_a_row = 0

    def died(self, now_s: float, served_s: float) -> float | None:
        """Count a death; the wait before the next start, seconds, or None to give up."""
        limits = self._limits
        self._deaths_s.append(now_s)
        while self._deaths_s[0] <= now_s - limits.window_s:
            self._deaths_s.popleft()
        if len(self._deaths_s) >= limits.max_deaths:
            return None
        if served_s >= limits.backoff_max_s:
            self._in_a_row = 0
        self._in_a_row += 1
        return min(limits.backoff_max_s, limits.backoff_s * 2.0 ** (self._in_a_row - 1))
