"""Pages go to the host, are overwritten, and come back elsewhere: the same bits, and the
same outputs, also where nothing but the device's own order keeps steps and copies apart."""

import torch
from torch import Tensor

from bench.gpu.findings import Findings
from bench.gpu.late_copies import late_copies
from bench.gpu.place import Place
from bench.gpu.steps import (
    RandomStep,
    RowShape,
    pages_for,
    poisoned_pool,
    random_step,
    step_meta,
)
from memory.attention.interface import AttentionBackend

SHAPES = [RowShape(100), RowShape(33), RowShape(257), RowShape(16)]
LAYER = 1
ROUNDS = 20
LATE_S = 0.02
"""Longer than the host takes to give the device all that follows."""


def check(place: Place, findings: Findings) -> None:
    for page_size in (1, 16):
        for fenced in (True, False):
            for round_ in range(3 if place.quick else ROUNDS):
                name = f"page {page_size}, {'fenced' if fenced else 'at once'}, {round_}"
                _Swap(place, page_size, seed=round_).check(findings, fenced, name)


class _Swap:
    """A pool with room for the step twice and as many host pages."""

    def __init__(self, place: Place, page_size: int, seed: int) -> None:
        spec = place.spec(9, 3, 64, page_size, num_layers=4)
        self._count = pages_for(SHAPES, page_size)
        self._pages = 2 * self._count + 1
        self._place = place
        self._backend: AttentionBackend = place.attention(spec)
        self._pool = poisoned_pool(self._backend, self._pages)
        with late_copies(place, LATE_S):
            self._host = self._backend.alloc_host(self._count + 3)
        self._step = random_step(spec, SHAPES, self._pages, place.generator(seed))

    def check(self, findings: Findings, fenced: bool, name: str) -> None:
        """`fenced`: with a wait after each copy; else step, copies, poison and the next step
        are given to the device at once, and it has to keep their order: the step begins late,
        and so does each copy when all before it is done."""
        step, backend, moved = self._step, self._backend, self._moved()
        for layer in range(step.spec.num_layers):
            step.fill_past(self._pool, layer)
        old, new = ([page for table in s.tables for page in table] for s in (step, moved))
        held = list(range(len(old) + 2, 2, -1))  # backwards: no two are next to each other
        places = torch.tensor(old, device=self._place.device)
        self._place.sync()
        self._place.hold(LATE_S)
        before = step.run(backend, LAYER)
        kept = self._pool.index_select(0, places)
        backend.copy_out(list(zip(old, held, strict=True)))
        self._wait(fenced)
        self._poison(old, fenced)
        backend.copy_in(list(zip(held, new, strict=True)))
        self._wait(fenced)
        after = _again(moved, backend)
        backend.fence()
        findings.expect(_same(self._host[held], kept), f"{name}: host pages differ")
        findings.expect(_same(self._pool[new], kept), f"{name}: device pages differ")
        findings.expect(torch.equal(before, after), f"{name}: outputs differ")

    def _wait(self, fenced: bool) -> None:
        if fenced:
            self._backend.fence()

    def _poison(self, pages: list[int], fenced: bool) -> None:
        """Overwrite the pages that went out. Not fenced: by a step that takes them, since the
        copies are ordered before a plan's writes alone."""
        if fenced:
            self._pool[pages] = torch.nan
            self._place.sync()
            return
        size = self._step.spec.page_size
        shape = RowShape(len(pages) * size, len(pages) * size)
        backend = self._backend
        backend.plan(step_meta([shape], [pages], size))
        heads = (shape.tokens, self._step.spec.num_kv_heads, self._step.spec.head_dim)
        poison = torch.full(heads, torch.nan, dtype=self._pool.dtype, device=self._pool.device)
        for layer in range(self._step.spec.num_layers):
            backend.write(layer, poison, poison)

    def _moved(self) -> RandomStep:
        """The same step in pages that it did not have."""
        step = self._step
        used = {page for table in step.tables for page in table}
        free = [page for page in range(1, self._pages) if page not in used]
        tables = []
        for table in step.tables:
            tables.append(free[: len(table)])
            free = free[len(table) :]
        meta = step_meta(step.shapes, tables, step.spec.page_size)
        return RandomStep(step.spec, step.shapes, tables, step.k, step.v, step.q, meta)


def _again(step: RandomStep, backend: AttentionBackend) -> Tensor:
    """Attend without writing: what the pages hold came by the copy."""
    backend.plan(step.meta)
    out = torch.full_like(step.q, torch.nan)
    backend.run(LAYER, step.q, out)
    return out


def _same(found: Tensor, kept: Tensor) -> bool:
    """Bit for bit; a NaN in an unused slot is one like another."""
    return torch.equal(*(x.cpu().view(torch.int16) for x in (found, kept)))
