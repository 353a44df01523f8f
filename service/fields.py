"""Collects what is wrong with a message's fields, so that a caller learns all at once."""

from collections.abc import Iterable
from math import inf

from google.protobuf.message import Message

from service.errors import InvalidArgument, Violation

MAX_DURATION_S = 315_576_000_000  # as google.protobuf.Duration defines it
MAX_VIOLATIONS = 16  # a status has to fit gRPC's 8 KiB of metadata


class Fields:
    """Each method checks one field; `settle` raises when any failed."""

    def __init__(self) -> None:
        self._violations: list[Violation] = []

    def settle(self) -> None:
        """Raises InvalidArgument with the first `MAX_VIOLATIONS` that were found."""
        if self._violations:
            raise InvalidArgument(self._violations[:MAX_VIOLATIONS])

    def add(self, field: str, description: str) -> None:
        """Something is wrong with a field."""
        self._violations.append(Violation(field, description))

    def require(self, good: bool, field: str, description: str) -> None:
        """`description` says what is wrong unless `good`."""
        if not good:
            self.add(field, description)

    def between(self, field: str, value: float, low: float, high: float) -> None:
        """Both ends included; NaN is nowhere."""
        self.require(
            low <= value <= high, field, f"is {_shown(value)}, allowed is {low} to {high}"
        )

    def above_zero(self, field: str, value: float, high: float) -> None:
        """Greater than 0, at most `high`."""
        self.require(
            0 < value <= high,
            field,
            f"is {_shown(value)}, allowed is more than 0 and up to {high}",
        )

    def positive(self, field: str, value: float) -> None:
        """Greater than 0 and finite."""
        self.require(
            0 < value < inf, field, f"is {_shown(value)}, allowed is more than 0 and finite"
        )

    def count(self, field: str, value: int, limit: int) -> bool:
        """How many elements. Whether so few: millions that are refused anyway must not be
        read, which would hold up the event loop."""
        self.require(value <= limit, field, f"has {value} elements, the limit is {limit}")
        return value <= limit

    def bytes(self, field: str, value: str, limit: int, least: int = 0) -> None:
        """Length in UTF-8."""
        size = len(value.encode())
        self.require(
            least <= size <= limit, field, f"has {size} bytes, allowed is {least} to {limit}"
        )

    def ids(self, field: str, ids: Iterable[int], vocab_size: int) -> None:
        """Token ids of the vocabulary. Names the largest one outside it."""
        worst = max(ids, default=0)
        self.require(
            worst < vocab_size, field, f"has token id {worst}, the vocabulary is {vocab_size}"
        )

    def duration(self, field: str, message: Message, name: str) -> None:
        """A google.protobuf.Duration, when present, greater than 0. Its two numbers have one
        sign, and the second is a part of a second."""
        if not message.HasField(name):
            return
        value = getattr(message, name)
        if abs(value.nanos) >= 1e9 or value.seconds * value.nanos < 0:
            self.add(field, f"is no duration: {value.seconds} seconds, {value.nanos} nanos")
            return
        length_s = value.seconds + value.nanos / 1e9
        self.require(
            0 < length_s <= MAX_DURATION_S,
            field,
            f"is {length_s:g} s, allowed is more than 0 and up to {MAX_DURATION_S} s",
        )


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"
