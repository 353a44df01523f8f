"""Which tokens requests know, and how often they wrote each, in a table on the device.

A request's prompt is counted once and then each new token, from where the step before left
it if need be. Counting everything at each step takes the host longer than the device takes
for the step: 28 ms for 256 requests of 4,000 tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.batch import IN_FLIGHT, RequestId, Row, Sampling
from models.device_previous import Previous
from models.transfers import upload

Ids = NDArray[np.int64]

IN_PROMPT = 1 << 30
"""Added to a count where the prompt has the token; smaller than that is how often it was
written."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A request's place in the table, and how many of its outputs are counted. `sampling` and
    `prompt` are its own objects: another use of its id has others."""

    place: int
    sampling: Sampling
    prompt: Sequence[int]
    counted: int

    def fits(self, row: Row) -> bool:
        same = self.sampling is row.sampling and self.prompt is row.prompt
        return same and self.counted <= len(row.output)


@dataclass(frozen=True, slots=True)
class Known:
    """The table int32 [lines, V], as of a step, and the line of each of the step's rows."""

    table: Tensor
    places: Sequence[int]

    def of(self, rows: Sequence[int]) -> Tensor:
        """The lines of some of the rows, int32 [rows, V]."""
        (at,) = upload(self.table.device, np.array([self.places[i] for i in rows], np.int64))
        return self.table.index_select(0, at)


class Counts:
    """A line for each request of the last step that has a penalty. A request that was not in
    it (it was preempted, say) is counted anew, so nothing has to be told of ends."""

    def __init__(self) -> None:
        self._table: Tensor | None = None
        self._lines: dict[RequestId, _Line] = {}

    def known(self, rows: Sequence[Row], like: Tensor, previous: Previous | None) -> Known:
        """Of all rows of a step that have a penalty; `like` [_, V] is on the device. Raises
        IndexError for a token outside the vocabulary, and KeyError for one in flight that the
        step before did not draw; then everything is counted anew."""
        lines, self._lines = self._lines, {}
        kept = [_kept(lines, row) for row in rows]
        taken = {line.place for line in kept if line is not None}
        table = self._grown(len(rows), like)
        free = (place for place in range(len(table)) if place not in taken)
        places = [next(free) if line is None else line.place for line in kept]
        fresh = [i for i, line in enumerate(kept) if line is None]
        if fresh:
            _count_prompts(table, [rows[i] for i in fresh], [places[i] for i in fresh])
        written = [
            row.output[0 if line is None else line.counted :]
            for row, line in zip(rows, kept, strict=True)
        ]
        _count_written(table, rows, places, written, previous)
        self._lines = {
            row.request: _Line(place, row.sampling, row.prompt, len(row.output))
            for row, place in zip(rows, places, strict=True)
        }
        return Known(table, places)

    def _grown(self, lines: int, like: Tensor) -> Tensor:
        """The table with at least `lines` lines, and never fewer than before, so that the
        memory of a trial step stays the maximum."""
        old, vocab = self._table, like.shape[1]
        if old is None or len(old) < lines:
            self._table = like.new_zeros((lines, vocab), dtype=torch.int32)
            if old is not None:
                self._table[: len(old)].copy_(old)
        assert self._table is not None
        return self._table


def _kept(lines: dict[RequestId, _Line], row: Row) -> _Line | None:
    line = lines.pop(row.request, None)  # one row has it, should two be of one request
    return line if line is not None and line.fits(row) else None


def _count_prompts(table: Tensor, rows: Sequence[Row], places: Sequence[int]) -> None:
    """Begin new lines. A prompt counts for the repetition penalty alone."""
    prompts = [row.prompt if row.sampling.repetition_penalty != 1.0 else () for row in rows]
    lines, at = upload(
        table.device, np.array(places, np.int64), flat(prompts, places, table.shape[1])
    )
    table.index_fill_(0, lines, 0)
    table.view(-1).index_fill_(0, at, IN_PROMPT)


def _count_written(
    table: Tensor,
    rows: Sequence[Row],
    places: Sequence[int],
    written: Sequence[Sequence[int]],
    previous: Previous | None,
) -> None:
    """Add what is not counted yet. Integers are added, so that the order in which a device
    does it changes nothing."""
    flying = [i for i, ids in enumerate(written) if ids and ids[-1] == IN_FLIGHT]
    landed = [ids[:-1] if ids and ids[-1] == IN_FLIGHT else ids for ids in written]
    size, cells = table.shape[1], table.view(-1)
    at, starts, drawn = upload(
        table.device,
        flat(landed, places, size),
        np.array([places[i] * size for i in flying], np.int64),
        np.array([_place(rows[i], previous) for i in flying], np.int64),
    )
    cells.scatter_add_(0, at, torch.ones_like(at, dtype=torch.int32))
    if flying and previous is not None:
        tokens = previous.tokens.index_select(0, drawn)
        # -1: that row failed, and this one's result is dropped.
        cells.scatter_add_(0, starts + tokens.clamp(min=0), (tokens >= 0).int())


def _place(row: Row, previous: Previous | None) -> int:
    if previous is None:
        raise KeyError(f"request {row.request} has a token in flight and no step before")
    return previous.place(row.request)


def flat(ids: Sequence[Sequence[int]], lines: Sequence[int], size: int) -> Ids:
    """Places in a flattened [lines, size] of some ids in each of some lines. One outside would
    be another line's, or break the device."""
    lengths = [len(some) for some in ids]
    every = np.fromiter(chain.from_iterable(ids), np.int64, sum(lengths))
    inside(every, size)
    return every + np.repeat(np.array(lines, np.int64) * size, lengths)


def inside(ids: Ids, size: int) -> None:
    """Raises IndexError for a token outside the vocabulary."""
    if ids.size and not 0 <= ids.min() <= ids.max() < size:
        worst = ids.min() if ids.min() < 0 else ids.max()
        raise IndexError(f"token id {worst} is outside the vocabulary of {size}")
