"""The row-wise kernels in plain torch: the oracle, and what runs without the extension."""

import torch
from torch import Tensor


class TorchOps:
    """`LayerOps` in torch."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return normed(x.float(), weight, eps).to(x.dtype)

    def add_rms_norm(self, residual: Tensor, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        residual.copy_(residual.float() + x.float())
        return self.rms_norm(residual, weight, eps)

    def silu_and_mul(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.float().chunk(2, dim=1)
        return (torch.nn.functional.silu(gate) * up).to(gate_up.dtype)

    def argmax(self, logits: Tensor) -> Tensor:
        top = logits.amax(dim=1)  # a NaN wins
        none = top.isnan() | (top == -torch.inf)
        return torch.where(none, -1, logits.argmax(dim=1))


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """float32 x [..., width] / rms(x) * weight."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.float()


def rotated(x: Tensor, cos_sin: Tensor) -> Tensor:
    """float32 x [tokens, heads, dim] turned by cos_sin [tokens, dim], cosines first; the
    halves of a head are the two coordinates, as in GPT-NeoX."""
    a, b = x.chunk(2, dim=-1)
    cos, sin = cos_sin[:, None].chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
