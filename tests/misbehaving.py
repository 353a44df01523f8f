"""Strategies that plan like FCFS until a request of tenant "trouble" waits."""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from typing import ClassVar

from schedulers.fcfs import FCFS, FCFSOptions
from schedulers.interface import Plan, Snapshot


def hang() -> None:
    while True:
        time.sleep(0.01)


def leave() -> None:
    os._exit(3)


class Troubled(FCFS):
    trouble: ClassVar[Callable[[], object]]

    def plan(self, snap: Snapshot) -> Plan:
        if any(view.tenant == "trouble" for view in snap.waiting.values()):
            type(self).trouble()
        return super().plan(snap)


class Hangs(Troubled):
    trouble = staticmethod(hang)


class Exits(Troubled):
    trouble = staticmethod(leave)


class LosesARank(Troubled):
    """While it plans: the engine's child is killed, and nobody comes back."""

    @staticmethod
    def trouble() -> None:
        [rank] = [p for p in multiprocessing.active_children() if "rank" in p.name]
        rank.kill()
        hang()


class AsksToExit(Troubled):
    trouble = staticmethod(sys.exit)


class NotMade(FCFS):
    def __init__(self, options: object) -> None:
        raise RuntimeError("no licence\nand a second line")


class MadeByExiting(FCFS):
    def __init__(self, options: object) -> None:
        sys.exit("bye")


class Counted(FCFS):
    """Notes that it was made."""

    def __init__(self, options: FCFSOptions) -> None:
        super().__init__(options)
        with open(os.environ["MADE"], "a") as made:
            made.write(".")


class Raises(FCFS):
    def plan(self, snap: Snapshot) -> Plan:
        raise ZeroDivisionError("in a plug-in")
