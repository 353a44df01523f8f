"""New keys and values, plain and rotated, land in their slots of one layer and nowhere
else."""

import torch
from torch import Tensor

from bench.gpu.findings import Findings
from bench.gpu.place import Place
from bench.gpu.steps import RandomStep, RowShape, pages_for, places, random_step
from memory.attention.interface import AttentionBackend, Rotation
from memory.kernels.torch_ops import normed, rotated

SENTINEL = 3.0
LAYER = 1
ROUNDING = 2.0**-7  # of a bfloat16: two neighbours, as two orders of adding may give
SHAPES = [RowShape(1), RowShape(17), RowShape(64), RowShape(40, 40), RowShape(70, 23)]


def check(place: Place, findings: Findings) -> None:
    for head_dim in (64, 128):
        for page_size in (1, 16, 64):
            for norms in (False, True):
                _Case(place, findings, head_dim, page_size).run(norms)


class _Case:
    def __init__(self, place: Place, findings: Findings, head_dim: int, page_size: int) -> None:
        self._place, self._findings = place, findings
        self._name = f"head {head_dim}, page {page_size}"
        spec = place.spec(9, 3, head_dim, page_size, num_layers=3)
        num_pages = pages_for(SHAPES, page_size) + 5
        self._backend: AttentionBackend = place.attention(spec)
        self._pool = self._backend.alloc_pool(num_pages).fill_(SENTINEL)
        self._step = random_step(spec, SHAPES, num_pages, place.generator(head_dim))

    def run(self, norms: bool) -> None:
        if not norms:
            self._plain()
        self._rotated(norms)

    def _plain(self) -> None:
        step, backend = self._step, self._backend
        k, v = step.new(step.k), step.new(step.v)
        backend.plan(step.meta)
        backend.write(LAYER, k, v)
        same = torch.equal(self._pool, self._expected(k, v))
        self._findings.expect(same, f"{self._name}: write differs or strays")

    def _rotated(self, norms: bool) -> None:
        """Values are copied bit for bit; queries and keys are rotated up to rounding."""
        s, step = self._step.spec, self._step
        name = f"{self._name}{', normed heads' if norms else ''}"
        generator = self._place.generator(5)
        width = (s.num_q_heads + 2 * s.num_kv_heads) * s.head_dim
        tokens = len(step.meta.slots)
        qkv = torch.randn(tokens, width, generator=generator, device=s.device).to(s.dtype)
        rotation, positions = _rotation(step, norms, generator), _positions(step)
        heads = [s.num_q_heads, s.num_kv_heads, s.num_kv_heads]
        q, k, v = torch.split(qkv.view(tokens, -1, s.head_dim).clone(), heads, dim=1)
        self._pool.fill_(SENTINEL)
        self._backend.plan(step.meta)
        queries = self._backend.rope_write(LAYER, qkv, positions, rotation)
        wanted = (
            _turned(q, rotation.q_norm, rotation, positions),
            self._expected(_turned(k, rotation.k_norm, rotation, positions), v),
        )
        for what, found, right in zip(("queries", "pool"), (queries, self._pool), wanted):  # noqa: B905
            close = _close(found, right)
            self._findings.expect(close, f"{name}: rope_write, {what} differ")
        same = torch.equal(self._pool[:, :, 1], wanted[1][:, :, 1])
        self._findings.expect(same, f"{name}: rope_write, values differ or stray")

    def _expected(self, k: Tensor, v: Tensor) -> Tensor:
        """What the pool is to hold."""
        expected = torch.full_like(self._pool, SENTINEL)
        counts = [shape.tokens for shape in self._step.shapes]
        split = (torch.split(x, counts) for x in (k, v))
        for shape, table, new_k, new_v in zip(  # noqa: B905
            self._step.shapes, self._step.tables, *split
        ):
            page, offset = places(table, shape.length, self._step.spec)
            page, offset = page[-shape.tokens :], offset[-shape.tokens :]
            expected[page, LAYER, 0, offset] = new_k
            expected[page, LAYER, 1, offset] = new_v
        return expected


def _positions(step: RandomStep) -> Tensor:
    spans = [torch.arange(s.length - s.tokens, s.length) for s in step.shapes]
    return torch.cat(spans).to(step.spec.device)


def _rotation(step: RandomStep, norms: bool, generator: torch.Generator) -> Rotation:
    s = step.spec
    exponents = torch.arange(0, s.head_dim, 2, device=s.device) / s.head_dim
    longest = max(shape.length for shape in step.shapes)
    angles = torch.arange(longest, device=s.device)[:, None] * 1e4**-exponents
    table = torch.cat((angles.cos(), angles.sin()), dim=1)
    if not norms:
        return Rotation(table)
    weights = torch.rand(2, s.head_dim, generator=generator, device=s.device).to(s.dtype)
    return Rotation(table, weights[0].contiguous(), weights[1].contiguous())


def _turned(x: Tensor, norm: Tensor | None, rotation: Rotation, positions: Tensor) -> Tensor:
    wide = x.float() if norm is None else normed(x.float(), norm, rotation.eps)
    return rotated(wide, rotation.table[positions]).to(x.dtype)


def _close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found.float(), expected.float(), rtol=ROUNDING, atol=ROUNDING)
