"""What waits in the front end, and the limits that hold for it."""

from typing import Protocol

from service.metrics.families import Families


class Queue(Protocol):
    """Requests from their arrival until the engine admits them, and their prompt tokens."""

    requests: int
    tokens: int


class QueueMetrics:
    """Read when somebody looks, from whatever thread: both are plain numbers."""

    def __init__(self, families: Families) -> None:
        gauge = families.gauge
        self._requests = gauge("queue_requests", "Requests from arrival until admitted.")
        self._tokens = gauge("queue_tokens", "Prompt tokens of these, once tokenised.")
        self._max_requests = gauge("queue_max_requests", "More are refused.")
        self._max_tokens = gauge("queue_max_tokens", "More are refused.")

    def watch(self, queue: Queue, max_requests: int, max_tokens: int) -> None:
        self._requests.set_function(lambda: queue.requests)
        self._tokens.set_function(lambda: queue.tokens)
        self._max_requests.set(max_requests)
        self._max_tokens.set(max_tokens)
