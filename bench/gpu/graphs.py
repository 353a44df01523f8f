"""Decode steps of a graph against the same steps eager: captured with short rows, replayed
with long ones, fewer rows than it was captured with, and others than before.

On a CPU a capture is a tape of torch's operations: what is then checked are the buffers that
stay where they are, and the padding.
"""

import torch
from torch import Tensor

from bench.gpu.findings import Findings
from bench.gpu.judge import judge
from bench.gpu.kernels import TOLERANCE
from bench.gpu.logits import rounding
from bench.gpu.made import made, random_tokens, small_shape
from bench.gpu.oracle import error, exact
from bench.gpu.place import Place
from bench.gpu.rows import greedy
from bench.gpu.steps import (
    RandomStep,
    RowShape,
    pages_for,
    poisoned_pool,
    random_step,
    step_meta,
)
from memory.attention.interface import AttentionBackend, KVSpec
from models.random_weights import SMOLLM2_135M

HEADS = ((9, 3, 64), (32, 8, 128))
SIZES = (1, 4, 24)
LAYER = 1


def check(place: Place, findings: Findings) -> None:
    longest = 1500 if place.on_gpu else 150
    for heads in HEADS:
        for page_size in (16,) if place.quick else (1, 16, 64):
            spec = place.spec(*heads, page_size)
            _Attention(place, findings, spec, longest).check()
    _whole_model(place, findings)


class _Attention:
    """Write and attend in a graph of each size."""

    def __init__(self, place: Place, findings: Findings, spec: KVSpec, longest: int) -> None:
        self._place, self._findings, self._spec = place, findings, spec
        self._longest = longest
        rows = [RowShape(longest)] * max(SIZES)
        self._num_pages = pages_for(rows, spec.page_size) + 1
        self._backend: AttentionBackend = place.attention(spec, max(SIZES))
        self._pool = poisoned_pool(self._backend, self._num_pages)
        self._pool[0] = 0.0  # what padding rows read

    def check(self) -> None:
        for size in reversed(SIZES):
            graph = _Graph(self._place, self._backend, size)
            for rows in sorted({1, size // 2 or 1, size}):
                for lengths in (1, self._longest):
                    shapes = [RowShape(max(1, lengths - 13 * row)) for row in range(rows)]
                    self._replay(graph, shapes)

    def _replay(self, graph: "_Graph", shapes: list[RowShape]) -> None:
        seed = len(shapes) * 10_000 + shapes[0].length
        generator = self._place.generator(seed)
        step = random_step(self._spec, shapes, self._num_pages, generator, graph.size)
        self._pool[1:] = torch.nan
        step.fill_past(self._pool, LAYER)
        found = graph.run(step)
        apart = error(found, exact(step))
        name = f"head {self._spec.head_dim}, page {self._spec.page_size}, graph of {graph.size}"
        rows = f"{len(shapes)} rows of up to {shapes[0].length}"
        self._findings.expect(apart < TOLERANCE, f"{name}, {rows}: error {apart:.4g}")


class _Graph:
    """Captured with rows of one token, all of them padding."""

    def __init__(self, place: Place, backend: AttentionBackend, size: int) -> None:
        s = backend.spec
        self.size = size
        self._backend = backend
        self._k, self._v, self._q, self._out = (
            torch.zeros(size, heads, s.head_dim, dtype=s.dtype, device=s.device)
            for heads in (s.num_kv_heads, s.num_kv_heads, s.num_q_heads, s.num_q_heads)
        )
        backend.plan(step_meta([], [], s.page_size, size))
        self._replay = place.recorder()(self._work)

    def run(self, step: RandomStep) -> Tensor:
        """The step's own rows of the graph's output."""
        rows = len(step.shapes)
        self._backend.plan(step.meta)
        for buffer, values in (
            (self._k, step.new(step.k)),
            (self._v, step.new(step.v)),
            (self._q, step.q),
        ):
            buffer[:rows] = values
        self._out.fill_(torch.nan)
        self._replay()
        return torch.clone(self._out[:rows])

    def _work(self) -> None:
        self._backend.write(LAYER, self._k, self._v)
        self._backend.run(LAYER, self._q, self._out)


def _whole_model(place: Place, findings: Findings) -> None:
    """The runner with its graphs and without, through all layers, rows that end at different
    steps: the same tokens, but for ties."""
    config = SMOLLM2_135M if place.on_gpu else small_shape()
    tokens = 48 if place.on_gpu else 20
    prompts = [random_tokens(config, 5 + 9 * i, seed=i) for i in range(7)]
    tested, exact_model = (made(place, config, kind) for kind in ("tested", "exact"))
    eager, graphed = (
        greedy(tested.runner(place.recorder(), rows), prompts, tokens, tested.num_pages)
        for rows in (0, 8)
    )
    rounded = rounding(place, exact_model, prompts[-1])
    verdict = judge(exact_model, prompts, eager, graphed, rounded.tie)
    findings.expect(not verdict.wrong, f"runner: {'; '.join(verdict.wrong[:3])}")
    findings.figure("runner: same answers as without graphs", verdict.same / len(prompts))
