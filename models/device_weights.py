"""A model's tensors, on the device that computes."""

from torch import Tensor

from models.weights import TensorSource


class OnDevice:
    """A `TensorSource` that moves what another one reads, a tensor at a time: the host never
    holds the model."""

    def __init__(self, source: TensorSource, device: str) -> None:
        self._source = source
        self._device = device

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self._source.tensor(name, shape).to(self._device)
