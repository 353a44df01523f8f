"""When a request had given way, and how: its part of the receipt."""

from service.messages import MAX_PAUSES, Pause


class Pauses:
    """Of one request. Times are seconds from its arrival."""

    __slots__ = ("_ended_s", "_since_s", "first")

    def __init__(self) -> None:
        self.first: tuple[Pause, ...] = ()  # at most MAX_PAUSES
        self._ended_s = 0.0
        self._since_s: float | None = None

    def begin(self, pause: Pause) -> None:
        """The request gave way."""
        self._since_s = pause.at_s
        if len(self.first) < MAX_PAUSES:
            self.first = (*self.first, pause)

    def end(self, at_s: float) -> bool:
        """The request runs; whether it had given way before."""
        if self._since_s is None:
            return False
        self._ended_s += at_s - self._since_s
        self._since_s = None
        return True

    def total_s(self, at_s: float) -> float:
        """All pauses together, one that lasts until `at_s` included."""
        return self._ended_s + (0.0 if self._since_s is None else at_s - self._since_s)
