"""A hundred plans in a row, no wait in between: a plan's host buffers must not change under
the step before."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bench.gpu.findings import Findings
from bench.gpu.place import Place
from bench.gpu.steps import RandomStep, RowShape, pages_for, random_step
from memory.attention.interface import AttentionBackend

PLANS = 100
ROWS = 64
LAYERS = 2
HOLD_S = 0.2
"""The device is held so long before the first step. A plan waits for the one before it, so
only the first few find it held; the others come as fast as the host makes them."""


def check(place: Place, findings: Findings) -> None:
    """Steps of decode rows and mixed ones in turn, each with lengths of its own, so that a
    plan taken for another's shows. That each is right by itself is for other parts."""
    shapes = [_shapes(i, place.on_gpu) for i in range(PLANS if place.on_gpu else 20)]
    row = Row(place, shapes)
    alone, outs = row.one_by_one(), row.at_once()
    for i, (out, expected) in enumerate(zip(outs, alone, strict=True)):
        findings.expect(torch.equal(out, expected), f"plan {i} of a row differs from alone")
    findings.figure("plans in a row", len(outs))


class Row:
    """The same steps over the same pool of noise, again and again: what one of them writes,
    later ones may read, so each time the bits are the same."""

    def __init__(self, place: Place, shapes: Sequence[Sequence[RowShape]]) -> None:
        self._place = place
        spec = place.spec(9, 3, 64, num_layers=LAYERS)
        num_pages = max(pages_for(rows, spec.page_size) for rows in shapes) + 1
        self._backend: AttentionBackend = place.attention(spec)
        self._pool = self._backend.alloc_pool(num_pages)
        self._noise = torch.randn(
            self._pool.shape, generator=place.generator(0), device=place.device
        ).to(spec.dtype)
        self._steps: list[RandomStep] = [
            random_step(spec, rows, num_pages, place.generator(i))
            for i, rows in enumerate(shapes)
        ]

    def one_by_one(self) -> list[Tensor]:
        """Outputs of each step, the device idle before the next is planned."""
        self._pool.copy_(self._noise)
        outs = []
        for step in self._steps:
            outs.append(step.run(self._backend, LAYERS - 1))
            self._place.sync()
        return outs

    def at_once(self) -> list[Tensor]:
        """The same while the device is still held up before the first. The second time
        counts: then the pinned memory that the steps take is there, and to get it would have
        been a wait."""
        for _ in range(2):
            self._pool.copy_(self._noise)
            self._place.sync()
            self._place.hold(HOLD_S)
            outs = [step.run(self._backend, LAYERS - 1) for step in self._steps]
            self._place.sync()
        return outs


def decode_rows(i: int, rows: int) -> list[RowShape]:
    """Of step `i`."""
    return [RowShape(1 + (37 * i + 101 * row) % 400) for row in range(rows)]


def _shapes(i: int, on_gpu: bool) -> list[RowShape]:
    decodes = decode_rows(i, ROWS if on_gpu else 9)
    return decodes if i % 2 else [*decodes[: 4 + i % 9], RowShape(60 + i, 40), RowShape(9, 9)]
