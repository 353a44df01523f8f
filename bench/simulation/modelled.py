"""Profiles of GPUs from published figures: a roofline, measured by nobody.

With n GPUs, each of bandwidth B and dense bf16 rate F, a model of P parameters in bf16, L
layers, H query heads, K key heads and head size D, and the shares of the peaks below:

- weights_s = 2 P / (n B), every step reads all of them (the input embedding too, though a
  few rows of it would do: 6 % too much for the 8B model);
- token_s = row_s = 2 P / (n F), a multiplication and an addition a parameter, which hide
  behind `weights_s` until a step has some hundred tokens;
- context_token_s = 2 L K D * 2 bytes / (n B), keys and values that a decode row reads;
- pair_s = 4 L H D / (n F), the score and the weighted sum of a prefill token with one before;
- page_s = bytes of a page / (n * PCIe), each GPU moves its own heads;
- fixed_s: starting a graph, sampling and planning, 2 ms (engines in Python are reported at 1.5
  to 3); on several GPUs two all-reduces a layer on top, whose bytes are link_token_s (a ring
  moves 2 (n - 1) / n of them);
- eager_s = 0.1 ms L: a step with prefill is no graph, and launches its kernels one by one, 5 ms
  in all with 32 layers.

Pages are what the share of memory in use leaves beside weights and activations.

Sources: NVIDIA's data sheets of H100 SXM (80 GB, 3.35 TB/s, 989 TFLOP/s dense bf16, NVLink 900
and PCIe 5 x16 128 GB/s both ways together) and H200 SXM (141 GB, 4.8 TB/s, else as H100); the
model cards and configurations of Llama 3.1 8B and 70B.
"""

from dataclasses import dataclass

from bench.simulation.costs import StepModel
from bench.simulation.profile import Profile

BANDWIDTH_SHARE = 0.8
ARITHMETIC_SHARE = 0.5
LINK_SHARE = 0.8
MEMORY_SHARE = 0.9
ACTIVATION_BYTES = 3 * 2**30
HOST_BYTES = 64 * 2**30
STEP_S = 2e-3
EAGER_LAYER_S = 0.1e-3
ALL_REDUCE_S = 10e-6
PAGE_SIZE = 16
BF16_BYTES = 2


@dataclass(frozen=True, slots=True)
class GPU:
    """Peaks of one, in SI units; links one way."""

    memory_bytes: float
    bandwidth: float
    flops: float
    pcie: float = 64e9
    nvlink: float = 450e9


@dataclass(frozen=True, slots=True)
class Decoder:
    """A model's size."""

    parameters: float
    layers: int
    heads: int
    key_heads: int
    head_size: int
    context_tokens: int

    @property
    def weight_bytes(self) -> float:
        return BF16_BYTES * self.parameters

    @property
    def token_bytes(self) -> int:
        """Keys and values of a token, all layers."""
        return 2 * BF16_BYTES * self.layers * self.key_heads * self.head_size


H100 = GPU(80e9, 3.35e12, 989e12)
H200 = GPU(141e9, 4.8e12, 989e12)
LLAMA_8B = Decoder(8.03e9, 32, 32, 8, 128, 131072)
LLAMA_70B = Decoder(70.6e9, 80, 64, 8, 128, 131072)

MODELLED = {
    "h100-8b": (H100, LLAMA_8B, 1),
    "h100x4-70b": (H100, LLAMA_70B, 4),
    "h200-8b": (H200, LLAMA_8B, 1),
    "h200x4-70b": (H200, LLAMA_70B, 4),
}


def modelled(name: str) -> Profile:
    """The roofline profile of that name."""
    gpu, model, count = MODELLED[name]
    page_bytes = PAGE_SIZE * model.token_bytes
    pool_bytes = count * (MEMORY_SHARE * gpu.memory_bytes - ACTIVATION_BYTES)
    return Profile(
        name=name,
        source="modelled",
        note="roofline from published figures, not measured",
        costs=roofline(gpu, model, count),
        device_pages=int((pool_bytes - model.weight_bytes) // page_bytes),
        host_pages=count * HOST_BYTES // page_bytes,
        page_size=PAGE_SIZE,
        max_rows=256,
        max_step_tokens=2048,
        context_tokens=model.context_tokens,
        watermark_pages=16,
    )


def roofline(gpu: GPU, model: Decoder, count: int) -> StepModel:
    """Step costs of a model on `count` GPUs, by the formulae above."""
    bandwidth = count * gpu.bandwidth * BANDWIDTH_SHARE
    flops = count * gpu.flops * ARITHMETIC_SHARE
    width = model.heads * model.head_size
    reduces = 2 * model.layers if count > 1 else 0
    reduce_bytes = reduces * width * BF16_BYTES * 2 * (count - 1) / count
    token_s = 2 * model.parameters / flops
    return StepModel(
        fixed_s=STEP_S + reduces * ALL_REDUCE_S,
        token_s=token_s,
        row_s=token_s,
        context_token_s=model.token_bytes / bandwidth,
        pair_s=4 * model.layers * width / flops,
        page_s=PAGE_SIZE * model.token_bytes / (count * gpu.pcie * LINK_SHARE),
        weights_s=model.weight_bytes / bandwidth,
        eager_s=model.layers * EAGER_LAYER_S,
        link_token_s=reduce_bytes / (gpu.nvlink * LINK_SHARE),
    )
