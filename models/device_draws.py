"""Filters, draws and log-probabilities in batched tensor operations, a row by itself.

A GPU's float sums depend on how many rows there are, because the kernel is shaped to them.
Here a weight is an integer before it is summed (the largest is a power of two, and a row's
sum stays in 62 bits), so that a sum is exact in whatever order it is made. What ranks
compares integers too, made of a value and its place: nothing has an equal, so which kernel
selects or sorts does not matter. What remains are element-wise operations, maxima and
argmax. No result is looked at by the host: nothing here waits for the device.

A row without a distribution (NaN or infinity in it) gives some token of the vocabulary,
which means nothing.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_PLACE = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Filters:
    """Options of rows that draw, all [rows] on the device; None: of no row. `temperature`
    and `min_p` float32, `top_k` int64 in 1..widest, `top_p` and `uniform` (in [0, 1))
    float64."""

    temperature: Tensor
    uniform: Tensor
    top_k: Tensor | None = None
    widest: int | None = None
    top_p: Tensor | None = None
    min_p: Tensor | None = None


def drawn(logits: Tensor, peak: Tensor, f: Filters) -> Tensor:
    """A token of each row: temperature, top-k, top-p, min-p, then the inverse of the
    distribution function in token order. `logits` float32 [rows, V] are overwritten;
    `peak` [rows] are their maxima. Returns int64 [rows]."""
    heights = logits.sub_(peak[:, None]).div_(f.temperature[:, None])
    heights.nan_to_num_(nan=-math.inf, posinf=-math.inf, neginf=-math.inf)
    if f.top_k is not None:
        _keep_largest(heights, f.top_k, f.widest)
    weights = heights.exp_()
    if f.top_p is not None:
        _keep_nucleus(weights, f.top_p, f.widest)
    if f.min_p is not None:
        weights.masked_fill_(weights < f.min_p[:, None], 0.0)  # the largest weighs 1
    return _token_at(_counted(weights).cumsum(1), f.uniform)


def scored(logits: Tensor, peak: Tensor, tokens: Tensor, alternatives: int) -> Tensor:
    """Natural log-probability of a token of each row, then the ids and then the
    log-probabilities of the `alternatives` most likely, best first and the lowest id first
    among equals. `logits` float32 [rows, V], `peak` [rows] their maxima, `tokens` int64
    [rows], `alternatives` 0..V. Returns float64 [rows, 1 + 2 * alternatives]."""
    heights = (logits - peak[:, None]).nan_to_num_(nan=-math.inf, neginf=-math.inf)
    mass = _counted(heights.exp_()).sum(1).double()
    log_mass = mass.log_().sub_(_bits(logits) * math.log(2.0))
    best = _likeliest(logits, alternatives)
    ids = torch.cat((tokens[:, None], best), dim=1)
    logprobs = (logits.gather(1, ids) - peak[:, None]).double() - log_mass[:, None]
    return torch.cat((logprobs[:, :1], best.double(), logprobs[:, 1:]), dim=1)


def _likeliest(logits: Tensor, count: int) -> Tensor:
    """Ids int64 [rows, count] of the largest, in order."""
    if count == 0:
        return logits.new_zeros((len(logits), 0), dtype=torch.int64)
    return logits.shape[1] - 1 - (_highest(_ranks(logits), count) & _PLACE)


def _bits(values: Tensor) -> int:
    """A weight of 1 is 2 to this: V of them stay under 2**62."""
    return 62 - values.shape[1].bit_length()


def _counted(weights: Tensor) -> Tensor:
    """Weights in [0, 1] as integers. With up to 2**18 tokens, only what weighs less than
    2**-43 of the largest becomes 0."""
    return (weights * 2.0 ** _bits(weights)).long()


def _ranks(values: Tensor) -> Tensor:
    """int64 [rows, V] in the order of the values, the lower place higher among equals: the
    bits of the float, made to sort as integers, over the place from the end."""
    bits = (values + 0.0).view(torch.int32)  # of -0.0 those of 0.0
    high = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long() << 32
    return high | torch.arange(values.shape[1] - 1, -1, -1, device=values.device)


def _highest(ranks: Tensor, count: int | None) -> Tensor:
    """The `count` highest of each row, or all, descending."""
    if count is None:
        return ranks.sort(dim=1, descending=True).values
    return ranks.topk(count, dim=1).values


def _keep_largest(heights: Tensor, top_k: Tensor, widest: int | None) -> None:
    ranks = _ranks(heights)
    least = _highest(ranks, widest).gather(1, top_k[:, None] - 1)
    heights.masked_fill_(ranks < least, -math.inf)


def _keep_nucleus(weights: Tensor, top_p: Tensor, widest: int | None) -> None:
    """Zero all but the fewest largest that have `top_p` of the mass. With `widest` no more
    than so many weigh anything."""
    ranks = _ranks(weights)
    ordered = _highest(ranks, widest)
    reached = _counted((ordered >> 32).int().view(torch.float32)).cumsum(1)
    wanted = (reached[:, -1].double() * top_p).ceil_().long()
    last = torch.searchsorted(reached, wanted[:, None]).clamp_(max=ordered.shape[1] - 1)
    weights.masked_fill_(ranks < ordered.gather(1, last), 0.0)


def _token_at(reached: Tensor, uniform: Tensor) -> Tensor:
    """The first place whose running sum `reached` int64 [rows, V] is past the draw."""
    # Times less than 1 it rounds to less, so that some place is past it.
    target = (reached[:, -1].double() * uniform).long()
    places = torch.searchsorted(reached, target[:, None], right=True)[:, 0]
    return places.clamp_(max=reached.shape[1] - 1)
