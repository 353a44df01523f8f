"""Start-up check that a row's product does not depend on the rows beside it.

Bit-equal answers across batch sizes, chunks and preemptions rest on this. It is a property
of the matrix kernels on a kind of CPU, not a law, so it is measured for every shape of
weight, and the row padding that makes it hold is set.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.linear import Linear, RowPadding

ROWS = (1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 128, 257)
"""Batch sizes tried against a product's own largest."""

ENOUGH_OUTPUTS = 2**16
"""Outputs compared for each batch size at least. Rounding to bfloat16 hides a sum that was
made in another order in all but one of 6,000 outputs (1536 x 576, AVX-512), so a few rows
prove nothing."""

MOST_WEIGHTS = 2**29
"""Weights read for each batch size, about: half a second. Larger products are compared in
fewer batches, never in less than `ENOUGH_OUTPUTS`."""

PADDINGS = (
    RowPadding(),
    RowPadding(least=2),
    RowPadding(multiple=4),
    RowPadding(multiple=8),
    RowPadding(multiple=16),
    RowPadding(multiple=32),
)
"""Cheapest first."""


def make_invariant(linears: Sequence[Linear]) -> str | None:
    """Set the cheapest padding that makes each product independent of its batch. Returns
    None if all are, else which is not, for people.

    Products of one shape share a kernel, so one of each shape is measured.
    """
    found: dict[tuple[int, int, bool, torch.dtype], RowPadding | None] = {}
    for linear in linears:
        key = (linear.in_features, linear.out_features, linear.has_bias, linear.dtype)
        if key not in found:
            found[key] = _padding(linear)
        linear.padding = found[key] or RowPadding()
    faults = [key for key, padding in found.items() if padding is None]
    if not faults:
        return None
    return f"products of {faults[0][0]} x {faults[0][1]} depend on their batch on this machine"


def _padding(linear: Linear) -> RowPadding | None:
    generator = torch.Generator().manual_seed(0)
    rows = max(linear.max_rows, -(-ENOUGH_OUTPUTS // linear.out_features))
    x = torch.randn(rows, linear.in_features, generator=generator).to(linear.dtype)
    for padding in PADDINGS:
        linear.padding = padding
        if _holds(linear, x):
            return padding
    return None


def _holds(linear: Linear, x: Tensor) -> bool:
    """Every row equal to its result in the largest batch, also at another place in it."""
    whole = linear(x)
    return all(
        torch.equal(linear(x[start : start + n]), whole[start : start + n])
        for n in ROWS
        if n < linear.max_rows
        for start in _starts(linear, n, len(x))
    )


def _starts(linear: Linear, n: int, rows: int) -> range:
    """First rows of the batches of `n` that are compared: each of `rows` is in one, or where
    the product is large evenly spread ones are. Row 0 is left out but for single rows:
    a kernel's blocks of 8 or 16 rows would begin at the same rows in both products."""
    first = min(1, n - 1)
    batches = (rows - first) // n
    weights = linear.in_features * linear.out_features
    most = max(MOST_WEIGHTS // weights, -(-ENOUGH_OUTPUTS // (n * linear.out_features)))
    return range(first, first + batches * n, n * -(-batches // most))
