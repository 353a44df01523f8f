"""Bias, penalties and the mask of stop ids on a row's logits, in numpy.

What a request repeats at each step (its biases as arrays, which tokens it knows, how often it
wrote each) is made once and then grows by the new token: walking a long prompt in Python
takes longer than everything else here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.batch import Row, Sampling

Floats = NDArray[np.float32]
Ids = NDArray[np.intp]


def is_edited(row: Row) -> bool:
    """Whether the row draws from anything but its raw logits."""
    s = row.sampling
    return bool(s.logit_bias) or repeats(s) or counts(s) or masks_stops(row)


def repeats(s: Sampling) -> bool:
    """Whether the repetition penalty is on, which is for prompt and output."""
    return s.repetition_penalty != 1.0


def counts(s: Sampling) -> bool:
    """Whether a penalty is on that is for output alone."""
    return s.frequency_penalty != 0.0 or s.presence_penalty != 0.0


def masks_stops(row: Row) -> bool:
    """Whether stop ids cannot be drawn yet."""
    return bool(row.sampling.stop_ids) and len(row.output) < row.sampling.min_tokens


class Tally:
    """Distinct tokens, in no order, and how often each was added."""

    def __init__(self, tokens: Sequence[int]) -> None:
        found, often = np.unique(np.array(tokens, np.intp), return_counts=True)
        self._places = {token: place for place, token in enumerate(found.tolist())}
        self._ids, self._often = found, often

    def add(self, tokens: Sequence[int]) -> None:
        """Count some more."""
        for token in tokens:
            place = self._places.setdefault(token, len(self._places))
            if place == len(self._ids):
                self._ids = np.concatenate((self._ids, np.zeros(place + 64, np.intp)))
                self._often = np.concatenate((self._often, np.zeros(place + 64, np.intp)))
            self._ids[place] = token
            self._often[place] += 1

    @property
    def ids(self) -> Ids:
        return self._ids[: len(self._places)]

    @property
    def often(self) -> Ids:
        return self._often[: len(self._places)]


@dataclass(frozen=True, slots=True)
class Bias:
    """`logit_bias` as arrays: ids, and float64 to add."""

    ids: NDArray[np.int64]
    added: NDArray[np.float64]


def bias_of(row: Row) -> Bias:
    """The row's, empty where it has none."""
    pairs = np.array(row.sampling.logit_bias, np.float64).reshape(-1, 2)
    return Bias(pairs[:, 0].astype(np.int64), np.ascontiguousarray(pairs[:, 1]))


class Edits:
    """One request's."""

    def __init__(self, row: Row) -> None:
        self._bias = bias_of(row)
        self._counted = len(row.output)
        self._known = Tally([*row.prompt, *row.output]) if repeats(row.sampling) else None
        self._written = Tally(row.output) if counts(row.sampling) else None

    def edited(self, raw: Floats, row: Row) -> Floats:
        """A copy of the row's logits, with all of it."""
        s, logits = row.sampling, raw.copy()
        self._count(row)
        logits[self._bias.ids] += self._bias.added.astype(np.float32)
        if self._known is not None:
            known, penalty = logits[self._known.ids], np.float32(s.repetition_penalty)
            with np.errstate(all="ignore"):  # a penalty of next to nothing leaves the range
                raised = np.minimum(known / penalty, np.finfo(np.float32).max)
                logits[self._known.ids] = np.where(known > 0, raised, known * penalty)
        if self._written is not None:
            penalties = s.frequency_penalty * self._written.often + s.presence_penalty
            logits[self._written.ids] -= penalties.astype(np.float32)
        if masks_stops(row):
            logits[list(s.stop_ids)] = -np.inf
        return logits

    def _count(self, row: Row) -> None:
        new = row.output[self._counted :]
        self._counted += len(new)
        for tally in (self._known, self._written):
            if tally is not None:
                tally.add(new)
