"""Finding stop strings in a text that arrives in pieces.

Nothing is compiled: for each stop string the place is kept from where it may still become
complete. A place that failed once fails for good, so each is tried once, and a try is one
comparison of strings. The memory is that of the strings themselves.
"""

from collections.abc import Sequence


class StopMatcher:
    """Passes a text on until a stop string is complete in it.

    The match that is complete first wins, since nothing may be generated for the sake of a
    longer one; of those complete with the same character the longest, which begins first.
    How the text was cut into pieces changes nothing. With `include` the stop string itself
    is passed on too. Case and normalisation matter as in `==`. Raises ValueError for an
    empty stop string.
    """

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        if "" in stops:
            raise ValueError("a stop string must not be empty")
        self.matched: str | None = None
        self._include = include
        self._held = ""
        self._begins = dict.fromkeys(stops, 0)
        """For each stop string the first place in the held text where it may begin."""

    def feed(self, text: str) -> str:
        """What can be passed on. After a match nothing can."""
        if self.matched is not None:
            return ""
        if not self._begins:
            return text
        self._held += text
        ends: dict[int, str] = {}
        for stop, begin in self._begins.items():
            begin = self._begins[stop] = self._begin(stop, begin)
            end = begin + len(stop)
            if end <= len(self._held) and len(stop) > len(ends.get(end, "")):
                ends[end] = stop
        if ends:
            return self._end(min(ends), ends[min(ends)])
        return self._pass_on(min(self._begins.values()))

    def flush(self) -> str:
        """What was held back, when no more text comes."""
        return self._pass_on(len(self._held))

    def _begin(self, stop: str, begin: int) -> int:
        """From `begin` on, the first place where the held text has the stop string, or ends
        with a beginning of it; the end of the text where there is none."""
        held = self._held
        while (begin := held.find(stop[0], begin)) >= 0:
            if held.startswith(stop, begin) or (
                len(held) - begin < len(stop) and stop.startswith(held[begin:])
            ):
                return begin
            begin += 1
        return len(held)

    def _end(self, end: int, stop: str) -> str:
        self.matched = stop
        passed = self._held[: end if self._include else end - len(stop)]
        self._held = ""
        return passed

    def _pass_on(self, count: int) -> str:
        passed, self._held = self._held[:count], self._held[count:]
        for stop in self._begins:
            self._begins[stop] = max(0, self._begins[stop] - count)
        return passed
