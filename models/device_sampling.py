"""From logits to the next tokens of a step, on the device that computed the logits.

The rules and their order are those of `models.sampling`, and a row's token depends on its
batch mates as little. Nothing here waits for the device: what the host knows goes up in
small pinned copies, what was drawn stays on the device for the next step, and comes down in
one copy. A greedy row costs an argmax; others are worked on in groups that want the same,
few enough at once to bound the memory that takes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from models.batch import Row, RowResult, TokenLogprob
from models.device_draws import Filters, drawn, scored
from models.device_edits import DeviceEdits
from models.device_previous import Previous
from models.edits import is_edited
from models.philox import uniform
from models.sampling import GREEDY_BELOW, UndrawableError, fault, first_argmax
from models.transfers import download, upload

AT_ONCE = 2**23
"""Logits worked on at once: a temporary tensor of them takes 64 MiB at most."""

Scores = Callable[[], tuple[TokenLogprob, ...]]


class Want(NamedTuple):
    """What the rows of a group have in common."""

    edits: bool
    draws: bool
    top_k: bool
    top_p: bool
    min_p: bool


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a step drew. `tokens` int64 [rows] on the device, -1 for a row without a
    distribution; `packed` float64 [rows, 2 + scores] what `fetch` brings to the host: token,
    the peak of its logits (not finite: the fault), its log-probabilities."""

    tokens: Tensor
    packed: Tensor
    wanted: Sequence[int | None]

    def fetch(self) -> Callable[[], list[RowResult]]:
        """Start the one copy to the host. What is returned waits for it, and has the results
        of the rows in order."""
        arrive = download(self.packed)
        wanted = self.wanted

        def results() -> list[RowResult]:
            return [_result(*pair) for pair in zip(arrive().tolist(), wanted, strict=True)]

        return results


def draw(
    logits: Tensor,
    rows: Sequence[Row],
    previous: Previous | None = None,
    edits: DeviceEdits | None = None,
) -> Drawn:
    """Draw the next token of each row without waiting for it. `logits` float32 [R, V] belong
    to `rows`, in order; they are not changed. `previous` is needed for penalties on a token
    in flight, and `edits`, the same from step to step, spares making again what requests
    repeat. Raises what `DeviceEdits.of` raises."""
    best, raw_peak = _peaks(logits)
    peak = raw_peak.clone()
    edited = (edits or DeviceEdits()).of(rows, logits, previous)
    for want, places in _groups(rows, logits.shape[1]):
        group = [rows[i] for i in places]
        (at,) = upload(logits.device, np.array(places, np.int64))
        values = logits.index_select(0, at)
        if want.edits and edited is not None:
            edited.apply(values, places)
            _settle(values, at, best, peak)
        if want.draws:
            tops = peak.index_select(0, at)
            best.index_copy_(0, at, drawn(values, tops, _filters(group, want, logits)))
    tokens = best.masked_fill(~peak.isfinite(), -1)
    wanted = [row.sampling.logprobs for row in rows]
    scores = _scores(logits, raw_peak, best, wanted)
    packed = torch.cat((tokens.double()[:, None], peak.double()[:, None], *scores), dim=1)
    return Drawn(tokens, packed, wanted)


def prompt_logprobs(logits: Tensor, targets: Sequence[int], alternatives: int) -> Scores:
    """Log-probability of each target under its row of `logits` float32 [T, V], with the
    `alternatives` most likely tokens. Starts one copy to the host; what is returned waits
    for it, and raises UndrawableError for a row without a distribution."""
    count, size = min(alternatives, logits.shape[1]), _rows_at_once(logits.shape[1])
    (tokens,) = upload(logits.device, np.array(targets, np.int64))
    peak = logits.amax(1)
    parts = [torch.split(x, size) for x in (logits, peak, tokens)]
    found = [scored(raw, top, own, count) for raw, top, own in zip(*parts, strict=True)]
    arrive = download(torch.cat((peak.double()[:, None], torch.cat(found)), dim=1))

    def scores() -> tuple[TokenLogprob, ...]:
        lines = arrive().tolist()
        for top, *_ in lines:
            if not np.isfinite(top):
                raise UndrawableError(fault(top))
        pairs = zip(targets, lines, strict=True)
        return tuple(_logprob(token, line[1:], count) for token, line in pairs)

    return scores


def _peaks(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The first of each row's largest, and how high it is."""
    best = first_argmax(logits)
    return best, logits.gather(1, best[:, None])[:, 0]


def _settle(values: Tensor, at: Tensor, best: Tensor, peak: Tensor) -> None:
    """The peaks of edited rows instead of the raw ones, unless the raw row was faulty."""
    highest, top = _peaks(values)
    raw = peak.index_select(0, at)
    best.index_copy_(0, at, highest)
    peak.index_copy_(0, at, torch.where(raw.isfinite(), top, raw))


def _rows_at_once(vocab: int) -> int:
    return max(1, AT_ONCE // vocab)


def _groups(rows: Sequence[Row], vocab: int) -> Iterator[tuple[Want, list[int]]]:
    """The places of rows that want more than the largest logit, by what that is."""
    alike = defaultdict[Want, list[int]](list)
    for i, row in enumerate(rows):
        want = _want(row, vocab)
        if want.edits or want.draws:
            alike[want].append(i)
    size = _rows_at_once(vocab)
    for want, places in alike.items():
        for start in range(0, len(places), size):
            yield want, places[start : start + size]


def _want(row: Row, vocab: int) -> Want:
    s, edits = row.sampling, is_edited(row)
    if s.temperature < GREEDY_BELOW:
        return Want(edits, draws=False, top_k=False, top_p=False, min_p=False)
    return Want(edits, True, 0 < s.top_k < vocab, s.top_p < 1.0, s.min_p > 0.0)


def _filters(rows: Sequence[Row], want: Want, logits: Tensor) -> Filters:
    options = [row.sampling for row in rows]
    top_k = np.array([s.top_k for s in options], np.int64)
    kept, temperature, top_p, min_p, numbers = upload(
        logits.device,
        top_k,
        np.array([s.temperature for s in options], np.float64),
        np.array([s.top_p for s in options], np.float64),
        np.array([s.min_p for s in options], np.float64),
        uniform([s.seed for s in options], [len(row.output) for row in rows]),
    )
    return Filters(
        temperature.float(),
        numbers,
        kept if want.top_k else None,
        int(top_k.max()) if want.top_k else None,
        top_p if want.top_p else None,
        min_p.float() if want.min_p else None,
    )


def _scores(
    logits: Tensor, peak: Tensor, tokens: Tensor, wanted: Sequence[int | None]
) -> list[Tensor]:
    """Log-probabilities of the rows that want them, in float64 [rows, 1 + 2 * most]; nothing
    if none does."""
    places = [i for i, count in enumerate(wanted) if count is not None]
    if not places:
        return []
    most = _most(wanted, logits.shape[1])
    scores = logits.new_zeros((len(wanted), 1 + 2 * most), dtype=torch.float64)
    (every,) = upload(logits.device, np.array(places, np.int64))
    for at in torch.split(every, _rows_at_once(logits.shape[1])):
        raw, top, own = (x.index_select(0, at) for x in (logits, peak, tokens))
        scores.index_copy_(0, at, scored(raw, top, own, most))
    return [scores]


def _most(wanted: Sequence[int | None], vocab: int) -> int:
    return min(max(count or 0 for count in wanted), vocab)


def _result(line: list[float], count: int | None) -> RowResult:
    token, peak, *scores = line
    if not np.isfinite(peak):
        return RowResult(error=fault(peak))
    logprobs = () if count is None else (_logprob(int(token), scores, count),)
    return RowResult(tokens=(int(token),), logprobs=logprobs)


def _logprob(token: int, scores: list[float], count: int) -> TokenLogprob:
    """From [own, ids of the most likely, their log-probabilities]."""
    most = len(scores) // 2
    ids = (int(place) for place in scores[1 : 1 + most])
    top = zip(ids, scores[1 + most :], strict=True)
    return TokenLogprob(token, scores[0], tuple(top)[:count])
