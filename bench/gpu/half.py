"""Attention kernels in fp16 against float32: one case of each kind of step. Where nothing may
be compiled, they may not have been made."""

import os
from dataclasses import replace

import torch

from bench.gpu.findings import Findings, Skipped
from bench.gpu.kernels import KINDS, TOLERANCE, Case, case_error
from bench.gpu.place import Place

HEAD_DIM = 64


def check(place: Place, findings: Findings) -> None:
    place = replace(place, dtype=torch.float16)
    if place.on_gpu and os.environ.get("FLASHINFER_DISABLE_JIT"):
        _skip_unless_compiled(place)
    worst = 0.0
    for i, kind in enumerate(KINDS):
        case = Case(HEAD_DIM, 3, 16, kind)
        found = case_error(place, case, seed=i)
        findings.expect(found < TOLERANCE, f"{case}: error {found:.4g}")
        worst = max(worst, found)
    findings.figure("error in fp16", worst)


def _skip_unless_compiled(place: Place) -> None:
    # Imported here: it imports FlashInfer, which may not be there.
    from memory.attention.flashinfer_kernels import modules

    missing = [m.name for m in modules(place.spec(9, 3, HEAD_DIM)) if m.library is None]
    if missing:
        raise Skipped(f"FLASHINFER_DISABLE_JIT forbids to build {missing[0]}")
