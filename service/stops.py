"""Finding stop strings in a text that arrives in pieces.

Aho and Corasick's automaton ("Efficient string matching", CACM 18:6, 1975): its depth after
a character is the length of the longest end of the text that begins a stop string, which is
exactly what must be held back. The work is constant a character, whatever the stop strings.
"""

from collections import deque
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
        self._node = 0
        self._automaton = _Automaton(stops) if stops else None

    def feed(self, text: str) -> str:
        """What can be passed on. After a match nothing can."""
        if self._automaton is None:
            return text
        if self.matched is not None:
            return ""
        before = len(self._held)
        self._held += text
        for place, character in enumerate(text, before + 1):
            self._node = self._automaton.step(self._node, character)
            self.matched = self._automaton.match[self._node]
            if self.matched is not None:
                return self._end(place)
        return self._pass_on(len(self._held) - self._automaton.depth[self._node])

    def flush(self) -> str:
        """What was held back, when no more text comes."""
        self._node = 0
        return self._pass_on(len(self._held))

    def _end(self, place: int) -> str:
        assert self.matched is not None
        passed = self._held[: place if self._include else place - len(self.matched)]
        self._held = ""
        return passed

    def _pass_on(self, count: int) -> str:
        passed, self._held = self._held[:count], self._held[count:]
        return passed


class _Automaton:
    """Nodes are beginnings of stop strings, 0 the empty one. `match[n]` is the longest stop
    string that node n ends with."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._shorter = [0]  # the longest proper end of a node that is a node
        self.depth = [0]
        self.match: list[str | None] = [None]
        for stop in stops:
            self._add(stop)
        self._link()

    def step(self, node: int, character: str) -> int:
        while node and character not in self._next[node]:
            node = self._shorter[node]
        return self._next[node].get(character, 0)

    def _add(self, stop: str) -> None:
        node = 0
        for character in stop:
            if character not in self._next[node]:
                self._next[node][character] = len(self._next)
                self._next.append({})
                self._shorter.append(0)
                self.depth.append(self.depth[node] + 1)
                self.match.append(None)
            node = self._next[node][character]
        self.match[node] = stop

    def _link(self) -> None:
        """Breadth first, so that what is shorter is linked before it is asked."""
        queue = deque(self._next[0].values())
        while queue:
            node = queue.popleft()
            if self.match[node] is None:
                self.match[node] = self.match[self._shorter[node]]
            for character, child in self._next[node].items():
                self._shorter[child] = self.step(self._shorter[node], character)
                queue.append(child)
