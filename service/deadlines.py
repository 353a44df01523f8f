"""When requests must have ended: a heap of times, so that a step looks at what is due only."""

from collections.abc import Collection, Iterator
from heapq import heapify, heappop, heappush
from math import inf

from schedulers.interface import RequestId
from service.messages import Finish, Limits

SPARE_ENTRIES = 1024


class Deadlines:
    """Entries of requests that ended meanwhile are passed over by the caller; once they are
    most of the heap they are swept out, since a caller's limit may lie years ahead."""

    def __init__(self, live: Collection[int]) -> None:
        self._live = live
        self._heap: list[tuple[float, RequestId, int, Finish]] = []

    def add(self, request: RequestId, limits: Limits) -> None:
        """Watch a request's limits. Of those at one moment the first here counts: an answer
        goes before an error."""
        if len(self._heap) > SPARE_ENTRIES + 6 * len(self._live):
            self._heap = [entry for entry in self._heap if entry[1] in self._live]
            heapify(self._heap)
        watched = (
            (limits.end_by_s, Finish.MAX_TIME),
            (limits.expire_by_s, Finish.EXPIRED),
            (limits.admit_by_s, Finish.QUEUE_TIMEOUT),
        )
        for rank, (at_s, reason) in enumerate(watched):
            if at_s is not None and at_s < inf:
                heappush(self._heap, (at_s, request, rank, reason))

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_s(self) -> float | None:
        """The earliest limit, which may be that of a request that ended."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_s: float) -> Iterator[tuple[RequestId, Finish]]:
        """What is past `now_s`, earliest first, each once."""
        while self._heap and self._heap[0][0] <= now_s:
            _, request, _, reason = heappop(self._heap)
            yield request, reason
