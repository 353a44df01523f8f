"""First come, first served, where who gives way goes to host memory."""

from dataclasses import dataclass, field
from typing import ClassVar

from schedulers.eviction import DOC, Way
from schedulers.fcfs import plan_by_age
from schedulers.interface import ALWAYS, Plan, Promise, Snapshot


@dataclass(frozen=True, slots=True)
class SwapOptions:
    """Options of `swap`."""

    eviction: Way = field(default="swap", metadata={"doc": DOC})


class Swap:
    """The order of `fcfs`. A victim comes back without computing anything again, in its
    place by age: before whoever arrived after it and behind whoever arrived before, so
    neither arrivals nor the swapped starve each other. Remembers nothing."""

    Options: ClassVar[type[SwapOptions]] = SwapOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS | {
        Promise.NO_STARVATION,
        Promise.WORK_CONSERVING,
    }

    def __init__(self, options: SwapOptions) -> None:
        self.options = options

    def plan(self, snap: Snapshot) -> Plan:
        return plan_by_age(snap, self.options.eviction)
