"""Matrix products with weights laid out once for the machine at hand.

Prepacked weights are up to 1.5 times faster than `F.linear` on a CPU in oneDNN, and up to
twice that in our own kernel; and a row's result does not depend on the rows beside it
(`models.invariance` checks that at start).
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from memory.kernels.library import KernelsMissing, level
from memory.kernels.matmul import PackedProduct

Product = Callable[[Tensor], Tensor]
Kernel = Callable[[Tensor, Tensor | None], Product]

NATIVE = "native, fp32 sums"
_PACKED_FOR_ROWS = 512


@dataclass(frozen=True, slots=True)
class RowPadding:
    """Rows a product is computed with at least, and in multiples of."""

    least: int = 1
    multiple: int = 1

    def rows(self, rows: int) -> int:
        """How many rows `rows` become."""
        return max(self.least, -(-rows // self.multiple) * self.multiple)


class Linear:
    """x [rows, in_features] -> [rows, out_features], in x's dtype: x @ weight.T + bias.

    More than `max_rows` rows are computed in blocks of `max_rows`, so what holds for up to
    as many holds for any number. On a GPU nothing holds, and the weight is read once.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, kernel: Kernel, max_rows: int = 512
    ) -> None:
        self.out_features, self.in_features = weight.shape
        self.has_bias = bias is not None
        self.dtype = weight.dtype
        self.max_rows = max_rows if weight.is_cpu else sys.maxsize
        self.padding = RowPadding()
        self._product = kernel(weight.contiguous(), bias)

    def __call__(self, x: Tensor) -> Tensor:
        if not x.shape[0]:  # a step of chunks: reading the head's weights takes long
            return x.new_empty(0, self.out_features)
        if x.shape[0] <= self.max_rows:
            return self._padded(x)
        return torch.cat([self._padded(block) for block in torch.split(x, self.max_rows)])

    def _padded(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        padded = self.padding.rows(rows)
        if padded == rows:
            return self._product(x)
        return self._product(functional.pad(x, (0, 0, 0, padded - rows)))[:rows]


def cpu_kernel(dtype: torch.dtype) -> tuple[Kernel, str]:
    """The fastest way to multiply in `dtype` on this CPU, and its name for people.

    With AVX2 our own kernel is faster than oneDNN's in float32 at every number of rows;
    other levels were not measured, so there it only steps in for what oneDNN refuses:
    bfloat16 where the CPU lacks the instructions. Without either, bfloat16 values are
    multiplied in float32 and rounded, 8 times faster than torch's own bfloat16 product.
    """
    native = _native_level()
    if native == "avx2" and dtype == torch.float32:
        return PackedProduct, NATIVE
    if _onednn_takes(dtype):
        return _packed, "onednn"
    if native is not None:
        return PackedProduct, NATIVE
    if _onednn_takes(torch.float32):
        return _widened, "onednn fp32 of bf16 values"
    return plain, "torch"


def fastest_dtype() -> Literal["bf16", "fp32"]:
    """bf16 where this CPU multiplies it in hardware (AVX-512 BF16 or AMX), else fp32."""
    has_bf16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return "bf16" if has_bf16 else "fp32"


def _native_level() -> str | None:
    try:
        return level()
    except KernelsMissing:
        return None


def _onednn_takes(dtype: torch.dtype) -> bool:
    """Found by trying: what is refused depends on the CPU."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    try:
        _packed(torch.ones(16, 16, dtype=dtype), None)(torch.ones(2, 16, dtype=dtype))
    except RuntimeError:
        return False
    return True


def plain(weight: Tensor, bias: Tensor | None) -> Product:
    """A `Kernel` in torch: what a GPU's libraries are fastest with."""
    return lambda x: functional.linear(x, weight, bias)


def _packed(weight: Tensor, bias: Tensor | None) -> Product:
    onednn = torch.ops.mkldnn
    packed = onednn._reorder_linear_weight(weight, _PACKED_FOR_ROWS)
    multiply = onednn._linear_pointwise.default
    return lambda x: multiply(x, packed, bias, "none", [], "")


def _widened(weight: Tensor, bias: Tensor | None) -> Product:
    product = _packed(weight.float(), None if bias is None else bias.float())
    return lambda x: product(x.float()).to(torch.bfloat16)
