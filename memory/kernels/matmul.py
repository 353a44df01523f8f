"""Matrix products in C++ whose weights are laid out once."""

from ctypes import byref

import torch
from torch import Tensor

from memory.kernels.library import Product, load
from memory.kernels.ops import DTYPES, expect

PANEL = 16
UNIT = 32


class PackedProduct:
    """x [rows, inputs] -> x @ weight.T + bias [rows, outputs], all of the weight's dtype,
    float32 or bfloat16. Every output is one float32 sum over the inputs in order, rounded
    once: a row's bits depend neither on the other rows nor on the threads, of which there
    are as many as torch uses. Keeps a packed copy of the weight [outputs, inputs], not the
    weight."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        library = load()
        self._multiply = library.walkway_multiply
        self._dtype = weight.dtype
        self._outputs, self._inputs = weight.shape
        if weight.dtype not in DTYPES or not weight.numel():
            raise ValueError(
                f"a weight must be float32 or bfloat16 and not empty, not {weight.dtype} "
                f"{list(weight.shape)}"
            )
        if bias is not None:
            expect("bias", bias, (self._outputs,), weight.dtype)
        panels = _panels(weight)
        self._packed = torch.empty(panels.shape, dtype=weight.dtype)
        library.walkway_huge_pages(self._packed.data_ptr(), self._packed.nbytes)
        self._packed.copy_(panels)
        self._bias = None if bias is None else _padded(bias.float(), UNIT).clone()

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        expect("x", x, (rows, self._inputs), self._dtype)
        out = torch.empty(rows, self._outputs, dtype=self._dtype)
        args = Product(
            weight=self._packed.data_ptr(),
            bias=None if self._bias is None else self._bias.data_ptr(),
            x=x.data_ptr(),
            y=out.data_ptr(),
            rows=rows,
            inputs=self._inputs,
            outputs=self._outputs,
            is_bf16=self._dtype == torch.bfloat16,
            threads=torch.get_num_threads(),
        )
        if rows and self._multiply(byref(args)) != 0:
            raise MemoryError(f"no memory to multiply {rows} rows of {self._inputs}")
        return out


def _panels(weight: Tensor) -> Tensor:
    """The weight, padded where needed, in the order of `Product` in args.h: a view."""
    whole = _padded(_padded(weight.T, 2).T, UNIT)
    depth = 2 if weight.dtype == torch.bfloat16 else 1
    outputs, inputs = whole.shape
    return whole.view(outputs // PANEL, PANEL, inputs // depth, depth).transpose(1, 2)


def _padded(tensor: Tensor, multiple: int) -> Tensor:
    """With zeros up to a multiple of the first dimension; copied only if any are missing."""
    missing = -len(tensor) % multiple
    if not missing:
        return tensor
    return torch.cat((tensor, tensor.new_zeros(missing, *tensor.shape[1:])))
