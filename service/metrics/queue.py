"""What waits in the front end, and the limits that hold for it."""

from typing import Protocol

from service.metrics.families import Families


class Queue(Protocol):
    """Requests from their arrival until the engine admits them, the bytes and the tokens of
    their prompts, and the most of each."""

    requests: int
    bytes: int
    tokens: int
    max_requests: int
    max_bytes: int
    max_tokens: int


class QueueMetrics:
    """Read at each scrape, from another thread: all are plain numbers."""

    def __init__(self, families: Families) -> None:
        gauge = families.gauge
        self._requests = gauge("queue_requests", "Requests from arrival until admitted.")
        self._bytes = gauge("queue_bytes", "Bytes of the prompts of these.")
        self._tokens = gauge("queue_tokens", "Prompt tokens of these, once tokenised.")
        self._max_requests = gauge("queue_max_requests", "More are refused.")
        self._max_bytes = gauge("queue_max_bytes", "More are refused.")
        self._max_tokens = gauge("queue_max_tokens", "More are refused.")

    def watch(self, queue: Queue) -> None:
        self._requests.set_function(lambda: queue.requests)
        self._bytes.set_function(lambda: queue.bytes)
        self._tokens.set_function(lambda: queue.tokens)
        self._max_requests.set(queue.max_requests)
        self._max_bytes.set(queue.max_bytes)
        self._max_tokens.set(queue.max_tokens)
