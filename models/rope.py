"""Rotary position embedding: what a model's scaling does to its frequencies.

A scaling is held as one divisor a frequency, so that a config file's parameters and the
factors stored in a GGUF file mean the same to the model.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rope:
    """`theta` is the base; `divisors` has one value for each of head_dim / 2 frequencies,
    or is None where nothing is scaled."""

    theta: float
    divisors: tuple[float, ...] | None = None


def frequencies(theta: float, head_dim: int) -> list[float]:
    """Angle per position of each pair of dimensions, radians."""
    return [theta ** (-i / head_dim) for i in range(0, head_dim, 2)]


def llama3_divisors(
    theta: float, head_dim: int, scaling: Mapping[str, float]
) -> tuple[float, ...]:
    """Scaling of Llama 3.1: long wavelengths are divided by `factor`, short ones kept, those
    between blended.

    `scaling` has factor, low_freq_factor, high_freq_factor and
    original_max_position_embeddings; a missing one raises KeyError.
    """
    factor, low, high = (
        scaling[name] for name in ("factor", "low_freq_factor", "high_freq_factor")
    )
    context = scaling["original_max_position_embeddings"]

    def divisor(frequency: float) -> float:
        turns = context * frequency / (2 * math.pi)
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        return 1.0 / (kept + (1.0 - kept) / factor)

    return tuple(divisor(frequency) for frequency in frequencies(theta, head_dim))
