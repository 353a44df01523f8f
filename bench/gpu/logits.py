"""A random model of the default model's shape, teacher-forced over 512 tokens: its logits on
the backend under test against float32, and against the same model in the same dtype on the
reference backend, which says how much of the error is rounding."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.gpu.findings import Findings, Gate
from bench.gpu.made import Made, made, random_tokens, small_shape
from bench.gpu.place import Place
from models.random_weights import SMOLLM2_135M
from models.weights import TensorSource

CHUNK = 96
ROUNDING = 2.0
"""An error of so many times the reference backend's in the same dtype is rounding too."""


@dataclass(frozen=True, slots=True)
class Apart:
    """How far logits are from the exact ones. `decisive`: positions whose two largest exact
    logits are further apart than the error; `wrong` of them have another first choice."""

    error: float
    mean: float
    decisive: int
    wrong: int
    positions: int

    @property
    def tie(self) -> float:
        """How far apart exact logits of two tokens are at most when rounding may decide
        between them: some six standard deviations. The largest error would be no measure,
        since one position's may be far above all others."""
        return 8.0 * self.mean


def apart(found: Tensor, exact: Tensor) -> Apart:
    """Both float32 [positions, vocab]. A NaN is an infinite error."""
    difference = (found - exact).abs().nan_to_num(torch.inf)
    error = float(difference.amax())
    top = exact.topk(2, dim=1)
    decisive = (top.values[:, 0] - top.values[:, 1]) > error
    wrong = decisive & (found.argmax(1) != top.indices[:, 0])
    counts = (int(decisive.sum()), int(wrong.sum()), len(exact))
    return Apart(error, float(difference.mean()), *counts)


def check(place: Place, findings: Findings) -> None:
    config = SMOLLM2_135M if place.on_gpu else small_shape()
    tokens = random_tokens(config, 512 if place.on_gpu else 96)
    exact_model, model = (made(place, config, kind) for kind in ("exact", "tested"))
    exact = exact_model.logits(tokens, CHUNK)
    rounded = rounding(place, exact_model, tokens)
    compare(findings, "in chunks", apart(model.logits(tokens, CHUNK), exact), rounded)
    few = len(tokens) // 4
    found = apart(model.logits(tokens[:few], 1), exact[:few])
    compare(findings, "token by token", found, rounded)
    findings.figure("spread of the exact logits", float(exact.std()))


def rounding(
    place: Place, exact: Made, tokens: Sequence[int], source: TensorSource | None = None
) -> Apart:
    """How far the served dtype is from the exact model, on the reference backend: what is
    under test has no say in what it is held to."""
    model = made(place, exact.config, "reference", source=source)
    return apart(model.logits(tokens, CHUNK), exact.logits(tokens, CHUNK))


def compare(findings: Findings, name: str, found: Apart, rounded: Apart) -> None:
    """Figures of `found`, and faults where it is further apart than rounding is."""
    limit = ROUNDING * rounded.error
    findings.expect(
        found.error <= limit,
        f"{name}: error {found.error:.4g}, {rounded.error:.4g} is rounding's",
    )
    findings.expect(
        not found.wrong, f"{name}: {found.wrong} of {found.decisive} first choices differ"
    )
    findings.figure(f"{name}: error", found.error, gate=Gate(limit, least=False))
    findings.figure(f"{name}: mean error", found.mean)
    findings.figure(
        f"{name}: first choices that the error cannot change", found.decisive / found.positions
    )
