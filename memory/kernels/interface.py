"""The small row-wise kernels of a decoder layer, as a value that a model takes."""

from typing import Protocol

from torch import Tensor


class LayerOps(Protocol):
    """Rows are the leading dimension, contiguous; float32 or bfloat16, computed in float32
    and rounded once. A row's result does not depend on the other rows. ValueError for a
    tensor of another shape, dtype or layout."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """x [rows, width] / rms(x) * weight [width]."""

    def add_rms_norm(self, residual: Tensor, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Adds x [rows, width] to the residual in place and returns the norm of the
        (rounded) sum."""

    def silu_and_mul(self, gate_up: Tensor) -> Tensor:
        """silu(gate) * up of [rows, 2 * width], gate first -> [rows, width]."""

    def argmax(self, logits: Tensor) -> Tensor:
        """float32 [rows, vocab] -> int64 [rows]: the first index of the largest logit, -1
        for a row with a NaN in it or with nothing but -inf."""
