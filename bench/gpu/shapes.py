"""Models that are timed: their shapes, and whether the device has room for them."""

import torch

from bench.gpu.findings import Findings
from models.config import ModelConfig
from models.random_weights import LLAMA_8B, SMOLLM2_135M

SHAPES = {"default shape": SMOLLM2_135M, "8B shape": LLAMA_8B}
SPARE_BYTES = 6 * 2**30  # activations, graphs, logits


def free_for(findings: Findings, name: str, config: ModelConfig) -> bool:
    """Whether the device has the memory for such a model; noted if not."""
    needed, free = _needed_bytes(config), torch.cuda.mem_get_info()[0]
    if free < needed:
        findings.note(f"{name}: needs {needed / 2**30:.0f} GiB, {free / 2**30:.0f} are free")
    return free >= needed


def _needed_bytes(config: ModelConfig) -> int:
    """Weights, and what is used beside them."""
    wide = config.num_layers * config.hidden_size
    attention = wide * config.head_dim * 2 * (config.num_q_heads + config.num_kv_heads)
    tables = config.vocab_size * config.hidden_size * (1 if config.tied else 2)
    return 2 * (3 * wide * config.intermediate_size + attention + tables) + SPARE_BYTES
