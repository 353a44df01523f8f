"""Small tensors between host and device, beside what the device computes."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Numbers = NDArray[np.int64] | NDArray[np.float64]


def upload(device: torch.device, *columns: Numbers) -> list[Tensor]:
    """The columns, each 1-dimensional, as tensors of the same types on `device`: one copy
    from pinned memory for all of them, which the host does not wait for."""
    packed = torch.from_numpy(np.concatenate([column.view(np.int64) for column in columns]))
    if device.type == "cuda":
        packed = packed.pin_memory()
    sent = packed.to(device, non_blocking=True)
    parts = zip(torch.split(sent, [len(c) for c in columns]), columns, strict=True)
    return [part.view(torch.float64) if c.dtype.kind == "f" else part for part, c in parts]


def download(values: Tensor) -> Callable[[], Tensor]:
    """Start one copy to the host behind what the current stream was given so far; what is
    returned waits for that copy alone."""
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=values.is_cuda)
    host.copy_(values, non_blocking=True)
    if not values.is_cuda:
        return lambda: host
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record(torch.cuda.current_stream(values.device))

    def wait() -> Tensor:
        arrived.synchronize()
        return host

    return wait
