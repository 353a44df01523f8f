"""Bounds on what waits: requests, from their arrival until the engine admits them, and the
prompt tokens of those that are tokenised. What would exceed a bound is refused at once."""

from service.errors import Overloaded

RETRY_AFTER_S = 1.0


class Admission:
    """Hands out a `Place` for each request that waits."""

    def __init__(self, max_requests: int, max_tokens: int) -> None:
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self.requests = 0
        self.tokens = 0

    def check(self) -> None:
        """Raises Overloaded when there is no place."""
        if self.requests >= self._max_requests:
            raise Overloaded(
                f"{self.requests} requests are waiting, the limit is {self._max_requests}",
                RETRY_AFTER_S,
            )

    def enter(self) -> "Place":
        """A place in the queue. Raises Overloaded when there is none."""
        self.check()
        self.requests += 1
        return Place(self)

    def weigh(self, tokens: int) -> None:
        """Count a prompt. One alone is always let in, however long it is."""
        if self.tokens and self.tokens + tokens > self._max_tokens:
            raise Overloaded(
                f"{self.tokens} prompt tokens are waiting and this prompt has {tokens}, "
                f"the limit is {self._max_tokens}",
                RETRY_AFTER_S,
            )
        self.tokens += tokens


class Place:
    """One request's place; given up when it is admitted or ends, whichever comes first."""

    def __init__(self, admission: Admission) -> None:
        self._admission: Admission | None = admission
        self.tokens = 0

    def weigh(self, tokens: int) -> None:
        """Raises Overloaded when so many prompt tokens are too many."""
        if self._admission:
            self._admission.weigh(tokens)
            self.tokens = tokens

    def leave(self) -> None:
        """Give the place up. Again is a no-op."""
        if self._admission:
            self._admission.requests -= 1
            self._admission.tokens -= self.tokens
            self._admission = None
