"""A strategy that does anything legal: evicts both ways, chunks at random, changes its mind."""

from dataclasses import dataclass
from random import Random
from typing import ClassVar

from schedulers.draft import Draft
from schedulers.interface import (
    ALWAYS,
    Cause,
    Eviction,
    Mode,
    Plan,
    Promise,
    Snapshot,
)

CALMER = 0.995


@dataclass(frozen=True, slots=True)
class ErraticOptions:
    """Where the dice start, and how likely a running request is to be evicted in a step: with
    each plan less, or many requests in few pages would take for ever."""

    seed: int = 0
    evicts: float = 0.25


class Erratic:
    """Legal and progressing, and otherwise as odd as a plan can be."""

    Options: ClassVar[type[ErraticOptions]] = ErraticOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS

    def __init__(self, options: ErraticOptions) -> None:
        self._dice = Random(options.seed)
        self._evicts = options.evicts

    def plan(self, snap: Snapshot) -> Plan:
        dice, draft = self._dice, Draft(snap)
        self._evicts *= CALMER
        views = [*snap.running.values(), *snap.swapped.values(), *snap.waiting.values()]
        keep = dice.choice(views)
        for view in snap.running.values():
            if view.id != keep.id and dice.random() < self._evicts:
                draft.evict(view, Eviction(dice.choice(list(Mode)), Cause.PAGES))
        dice.shuffle(views)
        for view in views:
            if view.id not in draft.evicted and dice.random() < 0.8:
                draft.take(view, want=dice.randint(1, 4))
        if draft.is_empty:
            self._insist(snap, draft)
        return draft.plan()

    def _insist(self, snap: Snapshot, draft: Draft) -> None:
        """Nothing was granted: move whoever is oldest, whatever it costs the others."""
        everybody = [*snap.running.values(), *snap.swapped.values(), *snap.waiting.values()]
        views = [view for view in everybody if view.id not in draft.evicted]
        oldest = min(views, key=lambda view: view.id)
        for view in snap.running.values():
            if view.id != oldest.id and view.id not in draft.evicted:
                draft.evict(view, Eviction(self._dice.choice(list(Mode)), Cause.PAGES))
        if draft.take(oldest, want=1):
            return
        for view in views:
            if view.id not in draft.evicted and draft.take(view, want=1):
                return
