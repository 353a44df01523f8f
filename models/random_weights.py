"""Seeded random weights in a real model's shape, made where they are used: for checks and
measurements on machines that have no model file."""

from zlib import crc32

import torch
from torch import Tensor

from models.config import ModelConfig
from models.rope import Rope

SMOLLM2_135M = ModelConfig(
    family="llama",
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_layers=30,
    num_q_heads=9,
    num_kv_heads=3,
    head_dim=64,
    norm_eps=1e-5,
    rope=Rope(100000.0),
    context_tokens=8192,
    window=None,
    qkv_bias=False,
    output_bias=False,
    qk_norm=False,
    tied=True,
    eos_ids=(2,),
)
"""The default model's shape."""

LLAMA_8B = ModelConfig(
    family="llama",
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_layers=32,
    num_q_heads=32,
    num_kv_heads=8,
    head_dim=128,
    norm_eps=1e-5,
    rope=Rope(500000.0),
    context_tokens=8192,
    window=None,
    qkv_bias=False,
    output_bias=False,
    qk_norm=False,
    tied=False,
    eos_ids=(128001, 128009),
)


class RandomWeights:
    """A `TensorSource` of tensors that depend on the seed and their name alone (and on the
    kind of device). Matrices keep the scale of what they are applied to, norms are near 1,
    biases small: activations stay as large as the layers are many, logits near 1."""

    def __init__(self, seed: int, device: str, dtype: torch.dtype) -> None:
        self._seed = seed
        self._device = device
        self._dtype = dtype

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        generator = torch.Generator(self._device).manual_seed(self._seed ^ crc32(name.encode()))
        values = torch.empty(shape, dtype=self._dtype, device=self._device)
        if len(shape) == 2:
            return values.normal_(0.0, shape[1] ** -0.5, generator=generator)
        middle = 0.0 if name.endswith("bias") else 1.0
        return values.normal_(middle, 0.1, generator=generator)
