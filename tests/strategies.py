"""The built-in strategies by a word or two: name, and how its victims give way."""

from dataclasses import fields

from schedulers.interface import Scheduler
from schedulers.registry import BUILT_IN, find
from service.strategy import make_scheduler

EVICTIONS = ("recompute", "swap", "auto")


def variants(name: str) -> list[str]:
    """`name` with each eviction that it offers, or alone when it offers no choice."""
    offers = any(field.name == "eviction" for field in fields(find(name).Options))
    return [f"{name} {eviction}" for eviction in EVICTIONS] if offers else [name]


EVERY = [variant for name in BUILT_IN for variant in variants(name)]


def strategy(variant: str, **options: object) -> Scheduler:
    """The strategy that a line of `EVERY` names, with other options as they are."""
    name, _, eviction = variant.partition(" ")
    return make_scheduler(name, options | ({"eviction": eviction} if eviction else {}))
