"""Gives up on a plan that does not return, where the platform can."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Overlong(BaseException):
    """No Exception, so that a strategy's own `except` does not hide it."""


@contextmanager
def patience(limit_s: float) -> Iterator[None]:
    """Raises Overlong in the block after `limit_s` of wall time. Signals reach the main
    thread only: elsewhere the block may take for ever."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _give_up(number: int, frame: FrameType | None) -> None:
    raise Overlong
