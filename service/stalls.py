"""Is the engine stuck? Judged by looks, not by the clock: an observer that was itself held
up (a blocked event loop, a suspended machine) has looked once, however long that took, and
hears what came meanwhile before it looks again."""

LOOKS = 8


class StallWatch:
    """Made for a look every `timeout_s / LOOKS`. `LOOKS + 1` quiet ones in a row are a
    stall: the first may come right after the work did."""

    def __init__(self, timeout_s: float) -> None:
        self.look_s = timeout_s / LOOKS
        self._progress = 0
        self._quiet = 0

    def look(self, pending: bool, progress: int) -> bool:
        """Whether this look shows a stall. `progress` differs whenever there was some."""
        quiet = pending and progress == self._progress
        self._progress = progress
        self._quiet = self._quiet + 1 if quiet else 0
        return self._quiet > LOOKS
