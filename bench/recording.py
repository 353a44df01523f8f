"""A run of the load generator on disk: what was asked for, what came back, what the service
said of itself meanwhile."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.samples import Answer


@dataclass(frozen=True, slots=True)
class Sample:
    """The service's gauges at a moment, seconds from the start of the run. `held_slots`
    are the token slots of pages in use, `used_slots` those with a token in them."""

    at_s: float
    running: float
    waiting: float
    held_slots: float
    used_slots: float


@dataclass(frozen=True, slots=True)
class Recording:
    """One run. `load` says how the load was made, `service` what answered it."""

    load: str
    service: str
    answers: list[Answer]
    samples: list[Sample]


def save(recording: Recording, path: Path) -> None:
    """Write as JSON, with the folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(recording), indent=1))


def read(path: Path) -> Recording:
    """Raises msgspec.DecodeError for a file that is no recording."""
    return msgspec.json.decode(path.read_bytes(), type=Recording)
