"""With batch invariance on, a decode row's output has the same bits alone, beside others and
in another place. How often that holds for rows that prefill, and with it off, is told."""

import torch
from torch import Tensor

from bench.gpu.findings import Findings
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

HEADS = ((9, 3, 64), (32, 8, 128))
LAYER = 1


def check(place: Place, findings: Findings) -> None:
    for heads in HEADS:
        for invariant in (True, False):
            _check(place, findings, heads, invariant)


def _check(
    place: Place, findings: Findings, heads: tuple[int, int, int], invariant: bool
) -> None:
    longest = 2000 if place.on_gpu else 150
    lengths = [1, 17, 64, 65, 130, longest // 2, longest, 33, 90]
    rows = [RowShape(n) for n in lengths] + [RowShape(100, 30), RowShape(64, 64)]
    spec = place.spec(*heads)
    backend = place.attention(spec, batch_invariant=invariant)
    num_pages = pages_for(rows, spec.page_size) + 1
    pool = poisoned_pool(backend, num_pages)
    step = random_step(spec, rows, num_pages, place.generator(3))
    step.fill_past(pool, LAYER)
    together = _outputs(backend, step, list(range(len(rows))))
    same: dict[bool, list[bool]] = {True: [], False: []}
    for row, shape in enumerate(step.shapes):
        for company in _companies(row, len(rows)):
            found = _outputs(backend, step, company)[row]
            same[shape.tokens == 1].append(torch.equal(found, together[row]))
    name = f"heads {heads[0]}/{heads[1]} of {heads[2]}, {'on' if invariant else 'off'}"
    if invariant:
        decode = same[True]
        findings.expect(all(decode), f"{name}: {decode.count(False)} of {len(decode)} differ")
    for decodes, held in same.items():
        kind = "decode" if decodes else "prefill"
        findings.figure(f"{name}: {kind} rows with the same bits", sum(held) / len(held))


def _companies(row: int, rows: int) -> list[list[int]]:
    """The row alone, beside its neighbours, and behind all of a half."""
    near = sorted({row, (row + 1) % rows, (row + 5) % rows})
    return [[row], near, sorted({row, *range(rows // 2)})]


def _outputs(backend: AttentionBackend, step: RandomStep, rows: list[int]) -> dict[int, Tensor]:
    """The outputs of some of a step's rows, computed together."""
    shapes = [step.shapes[row] for row in rows]
    counts = [shape.tokens for shape in step.shapes]
    queries = torch.split(step.q, counts)
    chosen = RandomStep(
        step.spec,
        shapes,
        [step.tables[row] for row in rows],
        [step.k[row] for row in rows],
        [step.v[row] for row in rows],
        torch.cat([queries[row] for row in rows]),
        step_meta(shapes, [step.tables[row] for row in rows], step.spec.page_size),
    )
    out = chosen.run(backend, LAYER)
    split = torch.split(out, [shape.tokens for shape in shapes])
    return dict(zip(rows, split, strict=True))
