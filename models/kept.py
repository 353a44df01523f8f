"""What is made of a request once, and used at each step that it is in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from models.batch import RequestId, Row, Sampling

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    """`sampling` and `prompt` are the request's own objects: another request, or another use
    of its id, has others."""

    sampling: Sampling
    prompt: Sequence[int]
    made: T


class Kept(Generic[T]):
    """Keeps what `make` makes of a row for as long as the request is asked for in every step.
    After a pause (it was preempted, say) it is made anew, so nothing has to be told of ends,
    and no more is kept than a step has rows."""

    def __init__(self, make: Callable[[Row], T]) -> None:
        self._make = make
        self._last: dict[RequestId, _Entry[T]] = {}

    def of(self, rows: Sequence[Row]) -> list[T]:
        """Of each row of a step; call once a step, with all rows that have any."""
        entries = [self._entry(row) for row in rows]
        self._last = {row.request: entry for row, entry in zip(rows, entries, strict=True)}
        return [entry.made for entry in entries]

    def _entry(self, row: Row) -> _Entry[T]:
        last = self._last.get(row.request)
        if last and last.sampling is row.sampling and last.prompt is row.prompt:
            return last
        return _Entry(row.sampling, row.prompt, self._make(row))
