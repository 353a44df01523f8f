"""Where requests stand in a multi-level feedback queue."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from schedulers.interface import Plan, RequestId, RequestView, Snapshot

RATIO = 2  # of a level's quantum to that of the level above


@dataclass(slots=True)
class Place:
    """Of a request: smaller comes first. `used_s` is the part of the quantum that is gone."""

    level: int
    turn: int
    idle_s: float
    used_s: float = 0.0


class Levels:
    """The levels of all requests, brought up to date by snapshots and the plans before them. A
    request that waits keeps its place until it starves."""

    def __init__(self, starve_s: float) -> None:
        self._starve_s = starve_s
        self._places: dict[RequestId, Place] = {}
        self._idle: deque[tuple[float, RequestId]] = deque()
        self._starved: dict[RequestId, None] = {}
        self._turns = count()
        self._then_s = 0.0

    def key(self, view: RequestView) -> tuple[int, int]:
        """First the least level, in a level by turn."""
        place = self._places[view.id]
        return place.level, place.turn

    def starved(self, snap: Snapshot) -> Iterator[RequestView]:
        """Those at the top because they did not run for too long, that still do not run."""
        for request in self._starved:
            view = _idle(snap, request)
            if view is not None:
                yield view

    def is_starved(self, view: RequestView) -> bool:
        return view.id in self._starved

    def observe(self, snap: Snapshot, last: Plan, quantum_s: float) -> None:
        """Charge the step that `last` planned, place those that came, promote the starved."""
        self._charge(snap, last, quantum_s)
        for request, view in _came(snap).items():
            if request not in self._places:
                level, prefill_s = (
                    0,
                    snap.costs.step_s + snap.costs.prefill_s(snap.pending(view)),
                )
                while quantum_s * RATIO**level < prefill_s:
                    level += 1
                self._places[request] = Place(level, next(self._turns), snap.now_s)
                self._idle.append((snap.now_s, request))
        self._promote(snap)
        self._then_s = snap.now_s

    def _charge(self, snap: Snapshot, last: Plan, quantum_s: float) -> None:
        for request in last.tokens:
            place = self._places.get(request)
            if place is None:
                continue
            if request not in snap.running and _idle(snap, request) is None:
                del self._places[request]
                self._starved.pop(request, None)
                continue
            place.idle_s = snap.now_s
            place.used_s += snap.now_s - self._then_s
            self._starved.pop(request, None)
            if place.used_s >= quantum_s * RATIO**place.level:
                place.level, place.turn, place.used_s = place.level + 1, next(self._turns), 0.0
        self._idle.extend((snap.now_s, request) for request in last.evict)
        for request in last.evict:
            self._places[request].idle_s = snap.now_s

    def _promote(self, snap: Snapshot) -> None:
        while self._idle and self._idle[0][0] + self._starve_s <= snap.now_s:
            since_s, request = self._idle.popleft()
            place = self._places.get(request)
            if place is not None and place.idle_s == since_s and _idle(snap, request):
                place.level, place.turn, place.used_s = 0, next(self._turns), 0.0
                self._starved[request] = None


def _idle(snap: Snapshot, request: RequestId) -> RequestView | None:
    return snap.swapped.get(request) or snap.waiting.get(request)


def _came(snap: Snapshot) -> Mapping[RequestId, RequestView]:
    if snap.rebuild:
        return {**snap.running, **snap.swapped, **snap.waiting}
    return {id: snap.waiting[id] for id in snap.arrived if id in snap.waiting}
