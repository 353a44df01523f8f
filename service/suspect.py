"""Whose fault it would be if an engine ended now."""

import ctypes
import multiprocessing


class Suspect:
    """The `Flag` of a planner, seen by engine and front end, which outlives either. It says
    which strategy is at work, planning or being made at a start: `in_place`, the ticket of the
    exchange that brought it, or 0 for the one that the engine starts with."""

    def __init__(self) -> None:
        self._at_work = multiprocessing.get_context("spawn").RawValue(ctypes.c_longlong, -1)
        self.in_place = 0

    @property
    def value(self) -> bool:
        """Whether one is at work."""
        return self.ticket is not None

    @value.setter
    def value(self, at_work: bool) -> None:
        self._at_work.value = self.in_place if at_work else -1

    @property
    def ticket(self) -> int | None:
        """That of the one at work; the last there was where the engine is gone."""
        ticket: int = self._at_work.value
        return None if ticket < 0 else ticket
