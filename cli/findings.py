"""One line of what `walkway doctor` says."""

from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """`NOTE`: it would run, and an operator may want to know. `FAULT`: it would not."""

    OK = "ok"
    NOTE = "note"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was found, and what to do where something is missing."""

    topic: str
    grade: Grade
    said: str
    advice: str | None = None


def ok(topic: str, said: str) -> Finding:
    return Finding(topic, Grade.OK, said)


def note(topic: str, said: str, advice: str | None = None) -> Finding:
    return Finding(topic, Grade.NOTE, said, advice)


def fault(topic: str, said: str, advice: str | None = None) -> Finding:
    return Finding(topic, Grade.FAULT, said, advice)
