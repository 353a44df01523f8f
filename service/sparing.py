"""Log lines that come in thousands when something is wrong: some are written, the rest is
counted, and one line a second says how many were left out."""

import asyncio
from collections import Counter

import structlog

LINES = 10
WINDOW_S = 1.0

log = structlog.get_logger()


class SparingLog:
    """Writes at most `LINES` of each kind in a second. On one event loop."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def info(self, event: str, kind: str, **values: object) -> None:
        """A line, or one more of those that are left out; `kind` is what is counted."""
        if not self._seen:
            asyncio.get_running_loop().call_later(WINDOW_S, self._settle)
        self._seen[kind] += 1
        if self._seen[kind] <= LINES:
            log.info(event, **values)

    def _settle(self) -> None:
        left_out = {kind: n - LINES for kind, n in self._seen.items() if n > LINES}
        self._seen.clear()
        if left_out:
            log.warning("lines_left_out", counts=left_out, seconds=WINDOW_S)
