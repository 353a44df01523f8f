"""When requests must have ended: a heap of times, so that a step looks at what is due only."""

from collections.abc import Iterator
from heapq import heappop, heappush

from schedulers.interface import RequestId
from service.messages import Finish, Limits


class Deadlines:
    """Entries of requests that ended meanwhile are passed over by the caller."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, RequestId, Finish]] = []

    def add(self, request: RequestId, limits: Limits) -> None:
        """Watch a request's limits."""
        for at_s, reason in (
            (limits.end_by_s, Finish.MAX_TIME),
            (limits.expire_by_s, Finish.EXPIRED),
            (limits.admit_by_s, Finish.QUEUE_TIMEOUT),
        ):
            if at_s is not None:
                heappush(self._heap, (at_s, request, reason))

    def due(self, now_s: float) -> Iterator[tuple[RequestId, Finish]]:
        """What is past `now_s`, earliest first, each once."""
        while self._heap and self._heap[0][0] <= now_s:
            _, request, reason = heappop(self._heap)
            yield request, reason
