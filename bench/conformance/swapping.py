"""A strategy that leaves many swapped requests behind, for another one to find."""

from dataclasses import dataclass
from typing import ClassVar

from schedulers.draft import Draft
from schedulers.interface import (
    ALWAYS,
    Cause,
    Eviction,
    Mode,
    Plan,
    Promise,
    RequestView,
    Snapshot,
)
from schedulers.running import continue_running


@dataclass(frozen=True, slots=True)
class SwappingOptions:
    """Swapping has none."""


class Swapping:
    """Swaps out whoever had a token while others wait, and resumes only when nobody else is
    left."""

    Options: ClassVar[type[SwappingOptions]] = SwappingOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS

    def __init__(self, options: SwappingOptions) -> None:
        self.options = options

    def plan(self, snap: Snapshot) -> Plan:
        draft = Draft(snap)
        if snap.waiting:
            for view in snap.running.values():
                draft.evict(view, _swap(view))
        else:
            continue_running(snap, draft, _swap)
        joining = snap.waiting or ({} if snap.running else snap.swapped)
        for view in joining.values():
            draft.take(view)
        return draft.plan()


def _swap(view: RequestView) -> Eviction:
    return Eviction(Mode.SWAP, Cause.ROWS)
