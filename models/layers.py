"""A decoder's weights, fused and laid out for computing, from tensors by their names."""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.config import ModelConfig
from models.linear import Kernel, Linear
from models.shard import WHOLE, Shard
from models.weights import TensorSource

HEAD_ROWS = 32
"""Rows of the output head computed at a time: logits of a whole chunk would take 100 MB."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer. `q_norm` and `k_norm` [head_dim] where queries and keys are
    normed."""

    attention_norm: Tensor
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Decoder:
    """`embedding` [vocab, hidden] row major; `head` hidden -> vocab."""

    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Linear

    def linears(self) -> list[Linear]:
        """Every matrix product, the head last."""
        inner = [[la.qkv, la.output, la.gate_up, la.down] for la in self.layers]
        return [linear for four in inner for linear in four] + [self.head]


@dataclass(frozen=True, slots=True)
class LayerReader:
    """Reads a decoder in one dtype, with one kind of matrix product, and keeps one rank's
    part of it."""

    config: ModelConfig
    source: TensorSource
    dtype: torch.dtype
    kernel: Kernel
    shard: Shard = WHOLE

    def decoder(self) -> Decoder:
        """The model, or the shard's part. ModelError names a missing or misshapen tensor."""
        c = self.config
        table = (c.vocab_size, c.hidden_size)
        embedding = self._read("model.embed_tokens.weight", *table)
        head = embedding if c.tied else self._read("lm_head.weight", *table)
        bias = self._read("lm_head.bias", c.vocab_size) if c.head_bias else None
        return Decoder(
            embedding=embedding,
            layers=tuple(self._layer(f"model.layers.{i}.") for i in range(c.num_layers)),
            norm=self._read("model.norm.weight", c.hidden_size),
            head=Linear(head, bias, self.kernel, max_rows=HEAD_ROWS),
        )

    def _layer(self, at: str) -> Layer:
        c = self.config
        q, kv = c.num_q_heads * c.head_dim, c.num_kv_heads * c.head_dim
        hidden, inner = c.hidden_size, c.intermediate_size
        qkv = {"self_attn.q_proj": q, "self_attn.k_proj": kv, "self_attn.v_proj": kv}
        gate_up = {"mlp.gate_proj": inner, "mlp.up_proj": inner}
        return Layer(
            attention_norm=self._read(f"{at}input_layernorm.weight", hidden),
            qkv=self._by_outputs(at, qkv, hidden, c.qkv_bias),
            q_norm=self._head_norm(f"{at}self_attn.q_norm.weight"),
            k_norm=self._head_norm(f"{at}self_attn.k_norm.weight"),
            output=self._by_inputs(f"{at}self_attn.o_proj", hidden, q, c.output_bias),
            mlp_norm=self._read(f"{at}post_attention_layernorm.weight", hidden),
            gate_up=self._by_outputs(at, gate_up, hidden, c.mlp_bias),
            down=self._by_inputs(f"{at}mlp.down_proj", hidden, inner, c.mlp_bias),
        )

    def _by_outputs(self, at: str, parts: dict[str, int], width: int, bias: bool) -> Linear:
        """One product for several projections of the same input, stacked: of each, the
        outputs that are the shard's."""
        own = self.shard.rows
        weights = [own(self._read(f"{at}{part}.weight", n, width)) for part, n in parts.items()]
        biases = [own(self._read(f"{at}{part}.bias", n)) for part, n in parts.items() if bias]
        return Linear(torch.cat(weights), torch.cat(biases) if bias else None, self.kernel)

    def _by_inputs(self, name: str, outputs: int, width: int, bias: bool) -> Linear:
        """The product of the inputs that are the shard's: one term of a sum over the ranks,
        to which rank 0 adds the bias."""
        whole = self._read(f"{name}.weight", outputs, width)
        added = self._read(f"{name}.bias", outputs) if bias and self.shard.rank == 0 else None
        return Linear(self.shard.columns(whole), added, self.kernel)

    def _head_norm(self, name: str) -> Tensor | None:
        return self._read(name, self.config.head_dim) if self.config.qk_norm else None

    def _read(self, name: str, *shape: int) -> Tensor:
        return self.source.tensor(name, shape).to(self.dtype).contiguous()
