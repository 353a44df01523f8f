"""Bounds on what waits: requests and the bytes of their prompts, from their arrival until the
engine admits them, and the prompt tokens of those that are tokenised. What would exceed a
bound is refused at once."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from service.errors import Overloaded
from service.pace import Pace


class Admission:
    """Hands out a `Place` for each request that waits."""

    def __init__(
        self,
        max_requests: int,
        max_tokens: int,
        max_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_requests = max_requests
        self.max_tokens = max_tokens
        self.max_bytes = max_bytes
        self._pace = Pace(clock)
        self.requests = 0
        self.tokens = 0
        self.bytes = 0

    def check(self) -> None:
        """Raises Overloaded when there is no place."""
        if self.requests >= self.max_requests:
            raise self._overloaded(
                f"{self.requests} requests are waiting, the limit is {self.max_requests}"
            )

    def enter(self, size: int) -> "Place":
        """A place in the queue for a prompt of `size` bytes; a single one is always let in,
        however long it is. Raises Overloaded when there is none."""
        self.check()
        if self.bytes and self.bytes + size > self.max_bytes:
            raise self._overloaded(
                f"{self.bytes} bytes of prompts are waiting and this one has {size}, the "
                f"limit is {self.max_bytes}"
            )
        if not self.requests:
            self._pace.begin()
        self.requests += 1
        self.bytes += size
        return Place(self, size)

    def weigh(self, tokens: int) -> None:
        """Count a prompt. One alone is always let in, however long it is."""
        if self.tokens and self.tokens + tokens > self.max_tokens:
            raise self._overloaded(
                f"{self.tokens} prompt tokens are waiting and this prompt has {tokens}, "
                f"the limit is {self.max_tokens}"
            )
        self.tokens += tokens

    def leave(self, size: int, tokens: int) -> None:
        """A request waits no longer."""
        self.requests -= 1
        self.bytes -= size
        self.tokens -= tokens
        self._pace.count()

    def retry_after_s(self) -> float:
        """When it is worth while to come again: once half of what waits has left."""
        return self._pace.time_of(self.requests / 2)

    def _overloaded(self, why: str) -> Overloaded:
        return Overloaded(why, self.retry_after_s())


class Place:
    """One request's place; given up when it is admitted or ends, whichever comes first. As a
    context it is given up at its end."""

    def __init__(self, admission: Admission, size: int) -> None:
        self._admission: Admission | None = admission
        self._size = size
        self.tokens = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()

    def weigh(self, tokens: int) -> None:
        """Raises Overloaded when so many prompt tokens are too many."""
        if self._admission:
            self._admission.weigh(tokens)
            self.tokens = tokens

    def leave(self) -> None:
        """Give the place up. Again is a no-op."""
        if self._admission:
            self._admission.leave(self._size, self.tokens)
            self._admission = None
