"""Is the engine stuck? Judged by what an observer saw, not by the clock alone: one that was
itself held up (a blocked event loop, a suspended machine) counts a look as two at most,
however long it took, and hears what came meanwhile before it looks again."""

import time
from collections.abc import Callable

LOOKS = 8
LONGEST_LOOK_S = 0.25


class StallWatch:
    """Made for a look every `look_s`, which is short against `timeout_s` and short enough that
    a stall is seen within a second after it. `clock` is in seconds."""

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.look_s = min(timeout_s / LOOKS, LONGEST_LOOK_S)
        self._timeout_s = timeout_s
        self._clock = clock
        self._looked_s = clock()
        self._quiet_s = 0.0

    def look(self, moved: bool) -> bool:
        """Whether this look shows a stall. `moved`: something was done since the last one, or
        nothing had to be."""
        now_s = self._clock()
        passed_s = min(now_s - self._looked_s, 2 * self.look_s)
        self._quiet_s = 0.0 if moved else self._quiet_s + passed_s
        self._looked_s = now_s
        return self._quiet_s >= self._timeout_s
