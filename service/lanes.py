"""Threads for work that takes time in proportion to its size, which is known before.

Small pieces of work have a thread that large ones never hold; work that waits for a thread
waits in the order of arrival plus a time for its size, so that small ones overtake large ones
and the wait of each is bounded. Work whose caller leaves before it begins is dropped.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

SMALL = 16_384
"""Bytes; some 10 ms of tokenising."""
SECONDS_A_BYTE = 5e-6
"""Of being overtaken, some eight times what tokenising takes."""

T = TypeVar("T")


class Lane:
    """One thread and what waits for it."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self.busy = False

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """What `work` returns or raises, when it is its turn."""
        loop = asyncio.get_running_loop()
        await self._turn(loop.time() + SECONDS_A_BYTE * size)
        doing = loop.run_in_executor(self._thread, work)
        doing.add_done_callback(self._done)
        return await asyncio.shield(doing)  # a thread cannot be stopped, its turn lasts on

    def close(self) -> None:
        """Let the thread end once it is done."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, rank: float) -> None:
        if not self.busy:
            self.busy = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, next(self._order), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._next()  # it had got its turn
            raise

    def _done(self, doing: asyncio.Future[T]) -> None:
        if not doing.cancelled():
            doing.exception()  # was raised to the caller, if there still is one
        self._next()

    def _next(self) -> None:
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self.busy = False


class Lanes:
    """Two threads, one for small pieces of work alone."""

    def __init__(self, name: str) -> None:
        self._small, self._large = Lane(f"{name}-small"), Lane(f"{name}-large")

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """Run `work`, which handles `size` bytes; returns or raises what it does."""
        crowded = self._small.busy and not self._large.busy
        lane = self._large if size > SMALL or crowded else self._small
        return await lane.run(size, work)

    def close(self) -> None:
        """Let the threads end once they are done."""
        self._small.close()
        self._large.close()
