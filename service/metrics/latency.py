"""The time between two tokens of a request, for each token."""

import time
from collections.abc import Callable, Iterable

from service.messages import RequestEvent
from service.metrics.families import SHORT_S, Families


class InterTokenLatency:
    """Fed with the engine's news in the order in which they arrive.

    Tokens that arrive in one message (the front end was busy for longer than a step) were
    waited for together: the first of them had the whole gap, the others none. So the sum is
    right, there is one gap less than tokens, and a hitch shows as long as it was.
    """

    def __init__(self, families: Families, clock: Callable[[], float] = time.monotonic) -> None:
        self._gaps = families.histogram(
            "inter_token_latency",
            "Wait for each token after a request's first, at the front end; tokens that "
            "arrive together count one wait and 0 for the others.",
            SHORT_S,
        )
        self._clock = clock
        self._last_s: dict[int, float] = {}

    def arrived(self, events: Iterable[RequestEvent]) -> None:
        """News of a step, or of several."""
        now_s, last_s, observe = self._clock(), self._last_s, self._gaps.observe
        for event in events:
            if event.tokens:
                before_s = last_s.get(event.id)
                if before_s is not None:
                    observe(now_s - before_s)
                for _ in range(len(event.tokens) - 1):
                    observe(0.0)
                last_s[event.id] = now_s
            if event.finish is not None:
                last_s.pop(event.id, None)

    def down(self) -> None:
        """The engine is gone: nothing more is heard of its requests."""
        self._last_s.clear()
