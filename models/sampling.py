"""From logits to the next tokens of a step.

A row's token depends on its own logits, request and output position, never on its batch
mates or its place: each row is worked on by itself, in arrays of its own, in one thread.
The order is fixed: log-probabilities of the raw distribution; bias; repetition penalty
(prompt and output); frequency and presence penalties (output); stop ids masked before
`min_tokens`; temperature; top-k; top-p; min-p; draw. Among equals the lowest id goes first,
everywhere. Nothing is kept between steps: penalties are counted from the row.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.batch import Row, RowResult, Sampling, TokenLogprob
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


def choose(
    logits: Tensor, rows: Sequence[Row], argmax: Argmax = first_argmax
) -> list[RowResult]:
    """Draw the next token of each row. `logits` float32 [R, V] belong to `rows`, in order;
    they are not changed. A row that cannot be drawn from has `error` set and no token."""
    plain = [_is_plain(row) for row in rows]
    results = _choose_plain(logits, argmax) if any(plain) else [RowResult()] * len(rows)
    others = [i for i, easy in enumerate(plain) if not easy]
    draws = uniform(
        [rows[i].sampling.seed for i in others], [len(rows[i].output) for i in others]
    )
    for i, draw in zip(others, draws.tolist(), strict=True):
        results[i] = _choose_row(logits[i].cpu().numpy(), rows[i], draw)
    return results


def prompt_logprobs(
    logits: Tensor, targets: Sequence[int], alternatives: int
) -> tuple[TokenLogprob, ...]:
    """Log-probability of each target under its row of `logits` float32 [T, V], with the
    `alternatives` most likely tokens. Raises UndrawableError for a row without a
    distribution."""
    found = zip(logits.cpu().numpy(), targets, strict=True)
    return tuple(_logprob(row, target, alternatives) for row, target in found)


def _is_plain(row: Row) -> bool:
    """Greedy on the raw logits."""
    s = row.sampling
    return (
        s.temperature < GREEDY_BELOW
        and s.logprobs is None
        and not s.logit_bias
        and s.repetition_penalty == 1.0
        and s.frequency_penalty == 0.0
        and s.presence_penalty == 0.0
        and not masks_stops(row)
    )


def masks_stops(row: Row) -> bool:
    return bool(row.sampling.stop_ids) and len(row.output) < row.sampling.min_tokens


def _choose_plain(logits: Tensor, argmax: Argmax) -> list[RowResult]:
    best = argmax(logits)
    peaks = logits.gather(1, best[:, None])[:, 0].tolist()
    return [
        RowResult(tokens=(token,)) if np.isfinite(peak) else RowResult(error=fault(peak))
        for token, peak in zip(best.tolist(), peaks, strict=True)
    ]


def _choose_row(raw: Floats, row: Row, draw: float) -> RowResult:
    s = row.sampling
    try:
        _peak(raw)
        token = _draw(_adjusted(raw, row), s, draw)
        logprobs = () if s.logprobs is None else (_logprob(raw, token, s.logprobs),)
    except UndrawableError as error:
        return RowResult(error=str(error))
    return RowResult(tokens=(token,), logprobs=logprobs)


def fault(peak: float) -> str:
    return "nothing left to draw from" if peak == -np.inf else f"the logits reach {peak}"


def _peak(logits: Floats) -> np.float32:
    peak: np.float32 = logits.max()
    if not np.isfinite(peak):
        raise UndrawableError(fault(float(peak)))
    return peak


def _adjusted(raw: Floats, row: Row) -> Floats:
    """Bias, penalties and the mask, on a copy."""
    s, logits = row.sampling, raw.copy()
    for token, bias in s.logit_bias:
        logits[token] += np.float32(bias)
    if s.repetition_penalty != 1.0:
        seen = np.array([*row.prompt, *row.output], np.intp)
        known, penalty = logits[seen], np.float32(s.repetition_penalty)
        with np.errstate(all="ignore"):  # a penalty of next to nothing leaves the range
            raised = np.minimum(known / penalty, np.finfo(np.float32).max)
            logits[seen] = np.where(known > 0, raised, known * penalty)
    if s.frequency_penalty or s.presence_penalty:
        ids, counts = np.unique(np.array(row.output, np.intp), return_counts=True)
        penalties = s.frequency_penalty * counts + s.presence_penalty
        logits[ids] -= penalties.astype(np.float32)
    if masks_stops(row):
        logits[list(s.stop_ids)] = -np.inf
    return logits


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
    """Where the `count` largest are, in ascending order of place; the first among equals."""
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


def _logprob(raw: Floats, token: int, alternatives: int) -> TokenLogprob:
    peak = _peak(raw)
    heights = raw - peak
    log_mass = np.log(np.exp(heights, out=heights).sum())
    best = _largest(raw, min(alternatives, len(raw))) if alternatives else np.array([], np.intp)
    best = best[np.argsort(-raw[best], kind="stable")]
    top = zip(best.tolist(), (raw[best] - peak - log_mass).tolist(), strict=True)
    return TokenLogprob(token, float(raw[token] - peak - log_mass), tuple(top))
