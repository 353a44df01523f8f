"""The forward pass of a Llama-family decoder over paged keys and values."""

import torch
from torch import Tensor

from memory.attention.interface import AttentionBackend, Rotation
from models.config import ModelConfig
from models.layers import Decoder, Layer
from models.rope import Rope
from models.shard import WHOLE, Shard


class Llama:
    """One decoder, or one rank's shard of it, and the attention it runs on."""

    def __init__(
        self,
        config: ModelConfig,
        decoder: Decoder,
        attention: AttentionBackend,
        shard: Shard = WHOLE,
    ) -> None:
        self.vocab_size = config.vocab_size
        self._eps = config.norm_eps
        self._decoder = decoder
        self._attention = attention
        self._ops = attention.ops
        self._summed = shard.collective.all_reduce
        table = rope_table(config.rope, config.head_dim, config.context_tokens)
        table = table.to(attention.spec.device)
        self._rotations = [
            Rotation(table, layer.q_norm, layer.k_norm, config.norm_eps)
            for layer in decoder.layers
        ]

    def hidden(self, tokens: Tensor, positions: Tensor, wanted: Tensor) -> Tensor:
        """Normed last hidden states [wanted, hidden] of the tokens that `wanted` (int64
        places in the step) names. `tokens` and `positions` int64 [tokens]; the attention
        must have planned this step. Keys and values of all tokens are written. Every rank
        makes the same sums: how many there are depends on whether any token is wanted."""
        ops, eps, layers = self._ops, self._eps, self._decoder.layers
        residual = self._decoder.embedding[tokens]
        x = ops.rms_norm(residual, layers[0].attention_norm, eps)
        for i, layer in enumerate(layers):
            x = self._attend(i, layer, x, positions)
            last = i == len(layers) - 1
            if last:
                # Nothing behind the last attention serves a token that is not asked for.
                x, residual = x[wanted], residual[wanted]
                if not len(wanted):
                    return residual
            x = ops.add_rms_norm(residual, self._summed(layer.output(x)), layer.mlp_norm, eps)
            x = self._summed(layer.down(ops.silu_and_mul(layer.gate_up(x))))
            norm = self._decoder.norm if last else layers[i + 1].attention_norm
            x = ops.add_rms_norm(residual, x, norm, eps)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [rows, vocab] of normed hidden states [rows, hidden]."""
        return self._decoder.head(hidden).float()

    def _attend(self, i: int, layer: Layer, x: Tensor, positions: Tensor) -> Tensor:
        q = self._attention.rope_write(i, layer.qkv(x), positions, self._rotations[i])
        out = torch.empty_like(q)
        self._attention.run(i, q, out)
        return out.flatten(1)


def rope_table(rope: Rope, head_dim: int, positions: int) -> Tensor:
    """Cosines, then sines: float32 [positions, head_dim], each half head_dim / 2 wide."""
    if rope.frequencies is None:
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        frequency = 1.0 / (rope.theta**exponents)
    else:
        frequency = torch.tensor(rope.frequencies, dtype=torch.float32)
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequency
    return torch.cat((angles.cos(), angles.sin()), dim=1) * rope.scale
