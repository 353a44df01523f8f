"""Bias, penalties and the mask of stop ids on logits that lie on a device.

A row's last output may be a token that the host has not seen yet: it is looked up in the
tokens that the step before left on the device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.batch import IN_FLIGHT, RequestId, Row
from models.sampling import masks_stops
from models.transfers import upload

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Previous:
    """What the step before drew, for rows whose last output is `IN_FLIGHT`: `tokens` int64
    [its rows] on the device, and each request's place in them."""

    tokens: Tensor
    places: Mapping[RequestId, int]


def is_edited(row: Row) -> bool:
    """Whether the row draws from anything but its raw logits."""
    s = row.sampling
    return bool(s.logit_bias) or _repeats(row) or _counts(row) or masks_stops(row)


def edit(logits: Tensor, rows: Sequence[Row], previous: Previous | None) -> None:
    """Change `logits` float32 [rows, V] in place: bias; repetition penalty (prompt and
    output); frequency and presence penalties (output); stop ids masked before
    `min_tokens`. Raises IndexError for a token outside the vocabulary, and KeyError for one
    in flight that the step before did not draw."""
    _add_bias(logits, rows)
    repeats = [i for i, row in enumerate(rows) if _repeats(row)]
    if repeats:
        known = [[*rows[i].prompt, *rows[i].output] for i in repeats]
        _repel(logits, repeats, [rows[i] for i in repeats], known, previous)
    counts = [i for i, row in enumerate(rows) if _counts(row)]
    if counts:
        _penalise(logits, counts, [rows[i] for i in counts], previous)
    _mask_stops(logits, rows)


def _repeats(row: Row) -> bool:
    return row.sampling.repetition_penalty != 1.0


def _counts(row: Row) -> bool:
    return row.sampling.frequency_penalty != 0.0 or row.sampling.presence_penalty != 0.0


def _add_bias(logits: Tensor, rows: Sequence[Row]) -> None:
    biases = [row.sampling.logit_bias for row in rows]
    if not any(biases):
        return
    places = _flat([[token for token, _ in pairs] for pairs in biases], logits.shape[1])
    added = np.array([bias for pairs in biases for _, bias in pairs], np.float64)
    at, bias = upload(logits.device, places, added)
    flat = logits.view(-1)
    flat.index_copy_(0, at, flat.index_select(0, at) + bias.float())


def _repel(
    logits: Tensor,
    at: Sequence[int],
    rows: Sequence[Row],
    known: Sequence[Sequence[int]],
    previous: Previous | None,
) -> None:
    """The repetition penalty, on what each of the rows at `at` knows."""
    strengths = np.array([row.sampling.repetition_penalty for row in rows], np.float64)
    where, strength = upload(logits.device, np.array(at, np.int64), strengths)
    penalty = strength.float()[:, None]
    values = logits.index_select(0, where)
    seen = _occurrences(values, rows, known, previous) > 0
    raised = (values / penalty).clamp_(max=torch.finfo(torch.float32).max)
    changed = torch.where(values > 0, raised, values * penalty)
    logits.index_copy_(0, where, torch.where(seen, changed, values))


def _penalise(
    logits: Tensor, at: Sequence[int], rows: Sequence[Row], previous: Previous | None
) -> None:
    """Frequency and presence penalties of the rows at `at`."""
    where, frequency, presence = upload(
        logits.device,
        np.array(at, np.int64),
        np.array([row.sampling.frequency_penalty for row in rows], np.float64),
        np.array([row.sampling.presence_penalty for row in rows], np.float64),
    )
    values = logits.index_select(0, where)
    counts = _occurrences(values, rows, [row.output for row in rows], previous)
    penalties = (counts * frequency[:, None]).add_(presence[:, None]).float()
    logits.index_copy_(0, where, torch.where(counts > 0, values - penalties, values))


def _mask_stops(logits: Tensor, rows: Sequence[Row]) -> None:
    stops = [row.sampling.stop_ids if masks_stops(row) else () for row in rows]
    if any(stops):
        (at,) = upload(logits.device, _flat(stops, logits.shape[1]))
        logits.view(-1).index_fill_(0, at, -torch.inf)


def _occurrences(
    values: Tensor,
    rows: Sequence[Row],
    known: Sequence[Sequence[int]],
    previous: Previous | None,
) -> Tensor:
    """How often each token is among a row's `known`: int32 [rows, V]. Integers are added,
    so that the order in which a device does it changes nothing."""
    flying = [i for i, ids in enumerate(known) if ids and ids[-1] == IN_FLIGHT]
    landed = [ids[:-1] if ids and ids[-1] == IN_FLIGHT else ids for ids in known]
    size = values.shape[1]
    counts = torch.zeros_like(values, dtype=torch.int32)
    flat = counts.view(-1)
    at, starts, places = upload(
        values.device,
        _flat(landed, size),
        np.array([i * size for i in flying], np.int64),
        np.array([_place(rows[i], previous) for i in flying], np.int64),
    )
    flat.scatter_add_(0, at, torch.ones_like(at, dtype=torch.int32))
    if flying and previous is not None:
        tokens = previous.tokens.index_select(0, places)
        # -1: that row failed, and this one's result is dropped.
        flat.scatter_add_(0, starts + tokens.clamp(min=0), (tokens >= 0).int())
    return counts


def _place(row: Row, previous: Previous | None) -> int:
    if previous is None:
        raise KeyError(f"request {row.request} has a token in flight and no step before")
    return previous.places[row.request]


def _flat(ids: Sequence[Sequence[int]], size: int) -> Ids:
    """Places in a flattened [rows, size] of each row's ids. One outside would be another
    row's, or break the device."""
    lengths = [len(some) for some in ids]
    every = np.fromiter(chain.from_iterable(ids), np.int64, sum(lengths))
    if every.size and not 0 <= every.min() <= every.max() < size:
        worst = every.min() if every.min() < 0 else every.max()
        raise IndexError(f"token id {worst} is outside the vocabulary of {size}")
    return every + np.repeat(np.arange(len(ids)) * size, lengths)
