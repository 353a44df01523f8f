"""From logits to the next tokens of a step.

A row's token depends on its own logits, request and output position, never on its batch
mates or its place: each row is worked on by itself, or summed by itself where all are worked
on at once.
The order is fixed: log-probabilities of the raw distribution; bias; repetition penalty
(prompt and output); frequency and presence penalties (output); stop ids masked before
`min_tokens`; temperature; top-k; top-p; min-p; draw. Among equals the lowest id goes first,
everywhere.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.batch import Row, RowResult, Sampling, TokenLogprob
from models.edits import Edits, is_edited
from models.kept import Kept
from models.philox import uniform

Floats = NDArray[np.float32]
Ids = NDArray[np.intp]
Argmax = Callable[[Tensor], Tensor]

GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy: dividing by them leaves the range of float32."""

_BLOCK = 256
_FEW = 256


class UndrawableError(ValueError):
    """A row has no distribution: NaN or infinity in it, or every token masked."""


def first_argmax(logits: Tensor) -> Tensor:
    """Index of the largest of each row [R, V] -> int64 [R]; the lowest among equals, and
    that of a NaN where there is one. Whatever replaces it must keep both."""
    if logits.device.type != "cpu":
        return logits.argmax(dim=1)
    return torch.from_numpy(logits.numpy().argmax(axis=1))  # 5 times faster than torch's


class Sampler:
    """Draws the next token of each row, step after step. What it keeps between steps is what
    rows say anyway, so that no token depends on it."""

    def __init__(self) -> None:
        self._edits = Kept(Edits)

    def choose(
        self, logits: Tensor, rows: Sequence[Row], argmax: Argmax = first_argmax
    ) -> list[RowResult]:
        """`logits` float32 [R, V] belong to `rows`, in order; they are not changed. A row that
        cannot be drawn from has `error` set and no token."""
        plain = [_is_plain(row) for row in rows]
        results = _choose_plain(logits, argmax) if any(plain) else [RowResult()] * len(rows)
        raw = logits.cpu().numpy()
        edited = [i for i, row in enumerate(rows) if is_edited(row)]
        made = self._edits.of([rows[i] for i in edited])
        edits = dict(zip(edited, made, strict=True))
        others = [i for i, easy in enumerate(plain) if not easy]
        draws = uniform(
            [rows[i].sampling.seed for i in others], [len(rows[i].output) for i in others]
        )
        for i, draw in zip(others, draws.tolist(), strict=True):
            results[i] = _choose_row(raw[i], rows[i], edits.get(i), draw)
        _add_logprobs(logits, rows, results)
        return results


def choose(
    logits: Tensor, rows: Sequence[Row], argmax: Argmax = first_argmax
) -> list[RowResult]:
    """`Sampler.choose` of a step without one before."""
    return Sampler().choose(logits, rows, argmax)


def prompt_logprobs(
    logits: Tensor, targets: Sequence[int], alternatives: int
) -> tuple[TokenLogprob, ...]:
    """Log-probability of each target under its row of `logits` float32 [T, V], with the
    `alternatives` most likely tokens. Raises UndrawableError for a row without a
    distribution."""
    for row in logits.numpy():
        _peak(row)
    return tuple(_logprobs(logits, targets, [alternatives] * len(targets)))


def _is_plain(row: Row) -> bool:
    """Greedy on the raw logits."""
    s = row.sampling
    return s.temperature < GREEDY_BELOW and not is_edited(row)


def _choose_plain(logits: Tensor, argmax: Argmax) -> list[RowResult]:
    best = argmax(logits)
    peaks = logits.gather(1, best[:, None])[:, 0].tolist()
    return [
        RowResult(tokens=(token,)) if np.isfinite(peak) else RowResult(error=fault(peak))
        for token, peak in zip(best.tolist(), peaks, strict=True)
    ]


def _choose_row(raw: Floats, row: Row, edits: Edits | None, draw: float) -> RowResult:
    try:
        _peak(raw)
        logits = raw if edits is None else edits.edited(raw, row)
        return RowResult(tokens=(_draw(logits, row.sampling, draw),))
    except UndrawableError as error:
        return RowResult(error=str(error))


def fault(peak: float) -> str:
    return "nothing left to draw from" if peak == -np.inf else f"the logits reach {peak}"


def _peak(logits: Floats) -> np.float32:
    peak: np.float32 = logits.max()
    if not np.isfinite(peak):
        raise UndrawableError(fault(float(peak)))
    return peak


def _draw(logits: Floats, s: Sampling, draw: float) -> int:
    peak = _peak(logits)
    if s.temperature < GREEDY_BELOW:
        return int(logits.argmax())
    with np.errstate(over="ignore"):  # to -inf: a weight of 0
        heights = logits - peak
        heights /= np.float32(s.temperature)
    weights = _weights(heights, s.top_k)
    if s.top_p < 1.0:
        weights = _nucleus(weights, s.top_p)
    if s.min_p > 0.0:
        weights[weights < np.float32(s.min_p) * weights.max()] = 0.0
    return _token_at(weights, draw)


def _weights(heights: Floats, top_k: int) -> Floats:
    """Probabilities [V] up to a factor; the largest weight is 1."""
    if not 0 < top_k < len(heights):
        return np.exp(heights, out=heights)
    weights, kept = np.zeros_like(heights), _largest(heights, top_k)
    weights[kept] = np.exp(heights[kept])
    return weights


def _largest(values: Floats, count: int) -> Ids:
    """Where the `count` largest are, in ascending order of place; the first among equals.

    `count` blocks have a value of at least the `count`-th largest of the blocks' maxima, so
    smaller values are not looked at.
    """
    if count == 0:
        return np.array([], np.intp)
    peaks = np.maximum.reduceat(values, np.arange(0, len(values), _BLOCK))
    if count < len(peaks):
        places = np.flatnonzero(values >= np.partition(peaks, -count)[-count])
        return places[_largest_of(values[places], count)]
    return _largest_of(values, count)


def _largest_of(values: Floats, count: int) -> Ids:
    least = len(values) - count
    return _down_to(values, np.partition(values, least)[least], count)


def _down_to(values: Floats, cutoff: np.float32, count: int) -> Ids:
    """`_largest`, where the `count`-th largest is known to be `cutoff`."""
    places = np.flatnonzero(values >= cutoff)
    if len(places) > count:
        equals = np.flatnonzero(values[places] == cutoff)
        places = np.delete(places, equals[count - len(places) :])
    return places


def _nucleus(weights: Floats, top_p: float) -> Floats:
    """Zero all but the fewest largest that have `top_p` of the mass.

    Only what may be inside is sorted. What weighs less than (1 - top_p) / V of the mass is
    outside, since all such together do not have 1 - top_p of it; half of that leaves room
    for rounding. A higher floor nearly always does, and is tried first.
    """
    mass = float(weights.sum())
    for share in (_FEW, 2 * len(weights)):
        places = np.flatnonzero(weights >= (1.0 - top_p) * mass / share)
        ordered = np.sort(weights[places])[::-1]
        reached = np.cumsum(ordered, dtype=np.float64)
        if reached.size and reached[-1] >= top_p * mass:
            break
    count = min(int(np.searchsorted(reached, top_p * mass)) + 1, len(places))
    nucleus = np.zeros_like(weights)
    kept = places[_down_to(weights[places], ordered[count - 1], count)]
    nucleus[kept] = weights[kept]
    return nucleus


def _token_at(weights: Floats, draw: float) -> int:
    """Inverse of the cumulated weights at `draw` in [0, 1). Sums blocks first: a running
    sum over the vocabulary takes longer than everything before it."""
    sums = np.add.reduceat(weights, np.arange(0, len(weights), _BLOCK))
    ends = np.cumsum(sums, dtype=np.float64)
    target = draw * ends[-1]
    block = int(np.searchsorted(ends, target, side="right"))
    before = ends[block - 1] if block else 0.0
    inside = np.cumsum(weights[block * _BLOCK : (block + 1) * _BLOCK], dtype=np.float64)
    # The block's two sums round differently; never step behind its last weight.
    rest = min(target - before, np.nextafter(inside[-1], 0.0))
    return block * _BLOCK + int(np.searchsorted(inside, rest, side="right"))


def _add_logprobs(logits: Tensor, rows: Sequence[Row], results: list[RowResult]) -> None:
    """To the results of rows that drew and want them."""
    wanted = [
        i
        for i, row in enumerate(rows)
        if row.sampling.logprobs is not None and results[i].tokens
    ]
    if not wanted:
        return
    raw = logits if len(wanted) == len(rows) else logits[wanted]
    counts = [rows[i].sampling.logprobs or 0 for i in wanted]
    found = _logprobs(raw, [results[i].tokens[0] for i in wanted], counts)
    for i, logprob in zip(wanted, found, strict=True):
        results[i] = replace(results[i], logprobs=(logprob,))


def _logprobs(
    logits: Tensor, tokens: Sequence[int], alternatives: Sequence[int]
) -> Iterator[TokenLogprob]:
    """Log-probabilities of a token of each row of `logits` float32 [R, V], and of that many
    most likely tokens. All rows at once, each summed in a fixed order."""
    lines = torch.log_softmax(logits, dim=1).numpy()
    for raw, line, token, count in zip(
        logits.numpy(), lines, tokens, alternatives, strict=True
    ):
        best = _largest(raw, min(count, len(raw)))
        best = best[np.argsort(-raw[best], kind="stable")]
        top = zip(best.tolist(), line[best].tolist(), strict=True)
        yield TokenLogprob(token, float(line[token]), tuple(top))
