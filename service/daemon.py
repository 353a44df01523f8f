"""Work in a thread that nobody waits for: the threads of an executor hold up the end of the
process until they are done, and a signal must not wait for a download."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises. When this is cancelled `work` goes on unheard, and ends
    with the process at the latest."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(say: Callable[[], None]) -> None:
        if not done.cancelled():
            say()

    def body() -> None:
        try:
            result = work()
        except Exception as error:
            say = partial(done.set_exception, error)
        else:
            say = partial(done.set_result, result)
        with suppress(RuntimeError):  # the event loop ended before
            loop.call_soon_threadsafe(settle, say)

    threading.Thread(target=body, daemon=True).start()
    return await done
