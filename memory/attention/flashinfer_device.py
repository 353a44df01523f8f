"""What FlashInfer's host side needs of a device: memory that it copies from by itself, and
events."""

from typing import Protocol

import torch
from torch import Tensor

from memory.attention.pinned import pinned_zeros


class Event(Protocol):
    """A place in the work of the stream that is current when it is recorded."""

    def record(self) -> None: ...

    def synchronize(self) -> None:
        """Wait for what was recorded; at once where nothing was."""


class Device(Protocol):
    @property
    def multiprocessors(self) -> int: ...

    def staged(self, values: Tensor) -> Tensor:
        """A copy of a host tensor of which nobody else knows, on the host, where the device
        can read it while the host goes on."""

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Host memory of that kind for good."""

    def event(self) -> Event: ...


class Cuda:
    """Staged memory is pinned: torch reuses it only after the copies from it, which is not
    so for what FlashInfer pins by itself."""

    def __init__(self, name: str) -> None:
        self._device = torch.device(name)
        properties = torch.cuda.get_device_properties(self._device)
        self.multiprocessors = int(properties.multi_processor_count)

    def staged(self, values: Tensor) -> Tensor:
        return torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values)

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return pinned_zeros(shape, dtype, self._device)

    def event(self) -> Event:
        return CudaEvent(self._device)


class CudaEvent:
    """In the device's current stream, whichever device is current."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def record(self) -> None:
        self._event.record(torch.cuda.current_stream(self._device))

    def synchronize(self) -> None:
        self._event.synchronize()


class Past:
    """An event where nothing runs beside the host."""

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass


class Cpu:
    """The host as its own device."""

    multiprocessors = 1

    def staged(self, values: Tensor) -> Tensor:
        return values.clone()

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype)

    def event(self) -> Event:
        return Past()


def device_for(name: str) -> Device:
    """`name` as in `KVSpec.device`."""
    return Cpu() if torch.device(name).type == "cpu" else Cuda(name)
