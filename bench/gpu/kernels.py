"""Attention kernels against float32: head dims, groups, page sizes and kinds of step, over
pages in random order whose unused slots are NaN."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.gpu.findings import Findings, Gate
from bench.gpu.oracle import error, exact
from bench.gpu.place import Place
from bench.gpu.steps import RowShape, pages_for, poisoned_pool, random_step

TOLERANCE = 1e-2  # rounding an output near 0.5 to bfloat16 comes to 0.002
LAYER = 1  # not the first: a view of the pool with a stride and an offset
GROUPS = {1: (4, 4), 3: (9, 3), 4: (8, 2), 8: (16, 2)}
HEAD_DIMS = (64, 128)
PAGE_SIZES = (1, 16, 64)

Shapes = list[RowShape]


def _decodes(count: int, longest: int) -> Shapes:
    """Lengths on both sides of page ends, the shortest and the longest possible."""
    edges = (1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129)
    lengths = itertools.cycle([n for n in edges if n < longest] + [longest])
    return [RowShape(next(lengths)) for _ in range(count)]


def _prefills(longest: int) -> Shapes:
    return [RowShape(n, n) for n in (2, 16, 33, longest)]


def _chunks(longest: int) -> Shapes:
    return [RowShape(longest, 32), RowShape(65, 64), RowShape(48, 16), RowShape(20, 3)]


KINDS: dict[str, Callable[[int], Shapes]] = {
    "decode of 1": lambda longest: [RowShape(longest)],
    "decode": lambda longest: _decodes(17, longest),
    "prefill": _prefills,
    "chunked": _chunks,
    "mixed, few decode": lambda longest: _decodes(3, longest) + _chunks(longest),
    "mixed, many decode": lambda longest: _decodes(20, longest) + _prefills(longest),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One shape of model, page and step."""

    head_dim: int
    group: int
    page_size: int
    kind: str

    def __str__(self) -> str:
        return f"head {self.head_dim}, group {self.group}, page {self.page_size}, {self.kind}"


def cases(quick: bool) -> Iterator[Case]:
    """All combinations; quick: each value in some."""
    everything = itertools.product(HEAD_DIMS, GROUPS, PAGE_SIZES, KINDS)
    return (Case(*one) for i, one in enumerate(everything) if not quick or i % 13 == 0)


def check(place: Place, findings: Findings) -> None:
    worst: dict[str, float] = {}
    for i, case in enumerate(cases(place.quick)):
        if findings.out_of_time(f"case {i}, {case}"):
            break
        found = case_error(place, case, seed=i)
        findings.expect(found < TOLERANCE, f"{case}: error {found:.4g}")
        worst[case.kind] = max(worst.get(case.kind, 0.0), found)
    for kind, value in worst.items():
        findings.figure(f"error, {kind}", value, gate=Gate(TOLERANCE, least=False))


def case_error(place: Place, case: Case, seed: int) -> float:
    """The largest difference to float32, infinite for a NaN."""
    longest = 700 if place.on_gpu else 130
    shapes = KINDS[case.kind](longest)
    spec = place.spec(*GROUPS[case.group], case.head_dim, case.page_size)
    backend = place.attention(spec)
    num_pages = pages_for(shapes, spec.page_size) + 9
    pool = poisoned_pool(backend, num_pages)
    step = random_step(spec, shapes, num_pages, place.generator(seed))
    step.fill_past(pool, LAYER)
    return error(step.run(backend, LAYER), exact(step))
