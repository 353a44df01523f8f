"""A hundred plans in a row, no wait in between: a plan's host buffers must not change under
the step before."""

import torch

from bench.gpu.findings import Findings
from bench.gpu.kernels import TOLERANCE
from bench.gpu.oracle import error, exact
from bench.gpu.place import Place
from bench.gpu.steps import RandomStep, RowShape, pages_for, poisoned_pool, random_step

PLANS = 100
ROWS = 64
LAYERS = 2


def check(place: Place, findings: Findings) -> None:
    """Steps of decode rows and mixed ones in turn, each with lengths of its own, so that a
    plan taken for another's shows. All of them read pages that none of them writes."""
    spec = place.spec(9, 3, 64, num_layers=LAYERS)
    shapes = [_shapes(i, place.on_gpu) for i in range(PLANS if place.on_gpu else 20)]
    num_pages = max(pages_for(rows, spec.page_size) for rows in shapes) + 1
    backend = place.attention(spec)
    steps = [
        random_step(spec, rows, num_pages, place.generator(i)) for i, rows in enumerate(shapes)
    ]
    pool = poisoned_pool(backend, num_pages)
    alone = []
    for step in steps:
        _fill(step, pool)
        alone.append(step.run(backend, LAYERS - 1))
        place.sync()
    worst = max(error(out, exact(step)) for out, step in zip(alone, steps, strict=True))
    findings.expect(worst < TOLERANCE, f"one at a time: error {worst:.4g}")
    outs = []
    for step in steps:
        _fill(step, pool)
        outs.append(step.run(backend, LAYERS - 1))
    place.sync()
    for i, (out, expected) in enumerate(zip(outs, alone, strict=True)):
        findings.expect(torch.equal(out, expected), f"plan {i} of a row differs from alone")
    findings.figure("plans in a row", len(outs))


def _shapes(i: int, on_gpu: bool) -> list[RowShape]:
    rows = ROWS if on_gpu else 9
    decodes = [RowShape(1 + (37 * i + 101 * row) % 400) for row in range(rows)]
    return decodes if i % 2 else [*decodes[: 4 + i % 9], RowShape(60 + i, 40), RowShape(9, 9)]


def _fill(step: RandomStep, pool: torch.Tensor) -> None:
    step.fill_past(pool, LAYERS - 1)
