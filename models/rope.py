"""Rotary position embedding: the frequencies that a model rotates by, scaled or not."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rope:
    """`theta` is the base. `frequencies` has the angle per position, in radians, of each of
    head_dim / 2 pairs, or is None where it follows from the base alone; `scale` multiplies
    cosines and sines; `kind` names the scaling for people."""

    theta: float
    frequencies: tuple[float, ...] | None = None
    scale: float = 1.0
    kind: str = "default"

    def __str__(self) -> str:
        return f"{self.kind}, theta {self.theta:g}"
