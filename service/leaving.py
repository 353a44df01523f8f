"""How the service is asked to leave: in good order first, at once when asked again."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Leaving:
    """All on one event loop. `patiently`: new calls are to be served for a while yet."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()
        self.patiently = False

    def ask(self, patiently: bool = False) -> None:
        """The first time asks for an orderly end, the second for one at once."""
        if self.asked.is_set():
            self.at_once.set()
        else:
            self.patiently = patiently
            self.asked.set()

    async def within(self, limit_s: float | None, work: Coroutine[Any, Any, object]) -> bool:
        """Whether the work was done in time: before the limit (None: there is none) and before
        the end at once. What was not is cancelled; what it raised is raised here."""
        working = asyncio.ensure_future(work)
        hurrying = asyncio.create_task(self.at_once.wait())
        try:
            await asyncio.wait(
                {working, hurrying}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            if working.done():
                working.result()
            return working.done()
        finally:
            for task in (working, hurrying):
                task.cancel()
            await asyncio.wait({working, hurrying})
