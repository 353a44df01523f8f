"""A plug-in that loads and plans like FCFS, until the environment says otherwise."""

import os
from dataclasses import dataclass
from typing import ClassVar

from schedulers.fcfs import FCFS
from tests.misbehaving import hang, leave

MOOD = os.environ.get("FICKLE", "")

if MOOD == "gone":
    raise ModuleNotFoundError("No module named 'fickle'")
if MOOD == "hangs":
    hang()
if MOOD == "exits":
    leave()


@dataclass(frozen=True, slots=True)
class FickleOptions:
    """Options of `Fickle`."""

    eviction: str = "recompute"

    def __post_init__(self) -> None:
        if MOOD == "refuses":
            raise ValueError("no such eviction any more")


class Fickle(FCFS):
    Options: ClassVar[type[FickleOptions]] = FickleOptions  # type: ignore[assignment]
