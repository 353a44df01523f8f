"""A CUDA graph where there is no CUDA: what is done while it records is done again, on the
same tensors, when it replays."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

SYNCS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)


class Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records torch operations, as a graph does its kernels: Python that chooses between
    them runs once, and results stay where they were. Refuses, as a capture does, what would
    have to wait for the device (RuntimeError)."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._steps: list[tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any], Any]] = []
        self._inside_kernel = False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if self._inside_kernel:
            return func(*args, **(kwargs or {}))
        if func in SYNCS:
            raise RuntimeError(f"{func} waits for the device, which a graph cannot")
        made = func(*args, **(kwargs or {}))
        self._steps.append((func, args, kwargs or {}, made))
        return made

    def kernel(self, kernel: Callable[..., None], *args: Any) -> None:
        """Run and record a kernel as one: it may read what it wants."""
        self._inside_kernel = True
        try:
            kernel(*args)
        finally:
            self._inside_kernel = False
        self._steps.append((kernel, args, {}, None))

    def replay(self) -> None:
        for func, args, kwargs, made in self._steps:
            again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(made), tree_leaves(again), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)
