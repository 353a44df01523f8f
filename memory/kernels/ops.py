"""The row-wise kernels in C++."""

from collections.abc import Callable, Sequence
from ctypes import byref

import torch
from torch import Tensor

from memory.kernels.library import Rows, load

DTYPES = (torch.float32, torch.bfloat16)
WIDTH_MULTIPLE = 8


def expect(name: str, tensor: Tensor, shape: Sequence[int], dtype: torch.dtype) -> None:
    """Raises ValueError unless the tensor is what a kernel that takes its address needs."""
    if tensor.shape != shape or tensor.dtype != dtype or not tensor.is_contiguous():
        raise ValueError(
            f"{name} must be contiguous {dtype} {list(shape)}, not {tensor.dtype} "
            f"{list(tensor.shape)} with strides {tensor.stride()}"
        )
    if not tensor.is_cpu:
        raise ValueError(f"{name} must be on the CPU, not on {tensor.device}")


class NativeOps:
    """`LayerOps` on the C++ kernels, on as many threads as torch uses. Widths are multiples
    of 8, except that of logits."""

    def __init__(self) -> None:
        library = load()
        self._rms_norm: Callable[..., None] = library.walkway_rms_norm
        self._add_rms_norm: Callable[..., None] = library.walkway_add_rms_norm
        self._silu_and_mul: Callable[..., None] = library.walkway_silu_and_mul
        self._argmax: Callable[..., None] = library.walkway_argmax

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        rows, width = _rows("x", x)
        expect("weight", weight, (width,), x.dtype)
        out = torch.empty_like(x)
        args = _args(x, out, rows, width, b=weight, eps=eps)
        self._rms_norm(byref(args))
        return out

    def add_rms_norm(self, residual: Tensor, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        rows, width = _rows("residual", residual)
        expect("x", x, (rows, width), residual.dtype)
        expect("weight", weight, (width,), residual.dtype)
        out = torch.empty_like(x)
        args = _args(residual, out, rows, width, b=x, c=weight, eps=eps)
        self._add_rms_norm(byref(args))
        return out

    def silu_and_mul(self, gate_up: Tensor) -> Tensor:
        rows, width = _rows("gate_up", gate_up, multiple=2 * WIDTH_MULTIPLE)
        out = torch.empty(rows, width // 2, dtype=gate_up.dtype)
        args = _args(gate_up, out, rows, width // 2)
        self._silu_and_mul(byref(args))
        return out

    def argmax(self, logits: Tensor) -> Tensor:
        rows, width = _rows("logits", logits, multiple=1)
        expect("logits", logits, (rows, width), torch.float32)
        out = torch.empty(rows, dtype=torch.int64)
        args = _args(logits, out, rows, width)
        self._argmax(byref(args))
        return out


def _rows(name: str, tensor: Tensor, multiple: int = WIDTH_MULTIPLE) -> tuple[int, int]:
    if tensor.dim() != 2 or tensor.dtype not in DTYPES or tensor.shape[1] % multiple:
        raise ValueError(
            f"{name} must be float32 or bfloat16 [rows, a multiple of {multiple}], "
            f"not {tensor.dtype} {list(tensor.shape)}"
        )
    rows, width = tensor.shape
    expect(name, tensor, (rows, width), tensor.dtype)
    return rows, width


def _args(
    a: Tensor,
    out: Tensor,
    rows: int,
    width: int,
    *,
    b: Tensor | None = None,
    c: Tensor | None = None,
    eps: float = 0.0,
) -> Rows:
    return Rows(
        a.data_ptr(),
        out.data_ptr(),
        None if b is None else b.data_ptr(),
        None if c is None else c.data_ptr(),
        rows,
        width,
        a.dtype == torch.bfloat16,
        torch.get_num_threads(),
        eps,
    )
