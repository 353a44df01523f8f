"""Time limits by the front end's own clock: an engine that is stuck holds no answer up."""

import asyncio
from collections.abc import Callable, Collection

from schedulers.interface import RequestId
from service.deadlines import Deadlines
from service.messages import Finish, Limits

GRACE_S = 0.25
"""The engine ends a request at its limit between two steps, and knows what was done to it.
This is how long it may take to say so."""


class TimeLimits:
    """Calls `over` for each limit that lies `grace_s` back; who ended in time is to be passed
    over there. `live` are the ids of open requests. All on one event loop, whose clock is the
    monotonic one, as that of the limits."""

    def __init__(
        self,
        live: Collection[int],
        over: Callable[[int, Finish], None],
        grace_s: float = GRACE_S,
    ) -> None:
        self._deadlines = Deadlines(live)
        self._over = over
        self._grace_s = grace_s
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, request: int, limits: Limits) -> None:
        """From now on."""
        self._deadlines.add(RequestId(request), limits)
        self._set_timer()

    def _set_timer(self) -> None:
        next_s = self._deadlines.next_s
        if next_s is None:
            return
        at_s = next_s + self._grace_s
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at_s, self._look)

    def _look(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        for request, reason in self._deadlines.due(now_s - self._grace_s):
            self._over(request, reason)
        self._set_timer()
