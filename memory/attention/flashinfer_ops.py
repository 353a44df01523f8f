"""The small row-wise kernels of a decoder layer on a GPU."""

from flashinfer.activation import silu_and_mul
from torch import Tensor
from torch.nn.functional import rms_norm

from memory.kernels.torch_ops import TorchOps


class FlashInferOps:
    """`LayerOps` for bfloat16 and float16. The norms are torch's: FlashInfer's need a
    compiler at run time."""

    def __init__(self) -> None:
        self._plain = TorchOps()

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return rms_norm(x, weight.shape, weight, eps)

    def add_rms_norm(self, residual: Tensor, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return self.rms_norm(residual.add_(x), weight, eps)

    def silu_and_mul(self, gate_up: Tensor) -> Tensor:
        out = gate_up.new_empty(len(gate_up), gate_up.shape[1] // 2)
        silu_and_mul(input=gate_up, out=out)
        return out

    def argmax(self, logits: Tensor) -> Tensor:
        return self._plain.argmax(logits)
