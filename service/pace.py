"""How fast a queue moves, and so when it is worth while to come again."""

from collections import deque
from collections.abc import Callable

SEEN = 256
"""The number of most recent departures that count."""
UNKNOWN_S = 1.0
LEAST_S, MOST_S = 0.1, 60.0


class Pace:
    """Counts those that leave a queue; `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left_s: deque[float] = deque([clock()], maxlen=SEEN)

    def begin(self) -> None:
        """The queue was empty until now: what was before says nothing."""
        self._left_s.clear()
        self._left_s.append(self._clock())

    def count(self) -> None:
        """One left."""
        self._left_s.append(self._clock())

    def time_of(self, places: float) -> float:
        """Seconds in which `places` requests leave at the recent pace, which falls for as long
        as the queue stands still."""
        left = len(self._left_s) - 1
        took_s = self._clock() - self._left_s[0]
        if not left or not took_s:
            return UNKNOWN_S
        return min(MOST_S, max(LEAST_S, places * took_s / left))
