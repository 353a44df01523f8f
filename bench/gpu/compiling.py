"""The kernels that the checks need, compiled where they are not yet, and loaded: so that no
later part has the compiler's time in it."""

import os
import time

import torch

from bench.gpu import half
from bench.gpu.findings import Findings
from bench.gpu.place import Place
from bench.gpu.steps import RowShape, pages_for, random_step

HEAD_DIMS = (64, 128)
SHAPES = [RowShape(5)] * 9 + [RowShape(20, 4)]


def check(place: Place, findings: Findings) -> None:
    if place.on_gpu:
        _compile(place, findings)
    began_s = time.perf_counter()
    for head_dim in HEAD_DIMS:
        spec = place.spec(8, 2, head_dim)
        backend = place.attention(spec)
        num_pages = pages_for(SHAPES, spec.page_size) + 1
        backend.alloc_pool(num_pages)
        random_step(spec, SHAPES, num_pages, place.generator(0)).run(backend, 0)
    place.sync()
    findings.figure("loading", time.perf_counter() - began_s, "s")


def _compile(place: Place, findings: Findings) -> None:
    # Imported here: it imports FlashInfer, which may not be there.
    from memory.attention.flashinfer_kernels import compile_modules

    began_s = time.perf_counter()
    wanted: list[tuple[torch.dtype, tuple[int, ...]]] = [(place.dtype, HEAD_DIMS)]
    if not os.environ.get("FLASHINFER_DISABLE_JIT"):  # else some may be there without this one
        wanted.append((torch.float16, (half.HEAD_DIM,)))
    for dtype, head_dims in wanted:
        for module, seconds in compile_modules([dtype], head_dims):
            findings.say(f"{module.name}: {seconds:.1f} s")
            findings.details.setdefault(module.name, round(seconds, 1))
    findings.figure("compiling, all modules", time.perf_counter() - began_s, "s")
