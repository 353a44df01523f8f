"""Random steps over pages in random order, with everything unused poisoned.

A row's keys and values are also kept in one piece, outside the pages: an oracle that reads
those cannot share a mistake in a page table.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

import torch
from torch import Tensor

from memory.attention.interface import AttentionBackend, KVSpec, StepMeta


@dataclass(frozen=True, slots=True)
class RowShape:
    """`length` positions, the last `tokens` of which are this step's."""

    length: int
    tokens: int = 1


@dataclass(slots=True)
class RandomStep:
    """A step's rows, decode rows first. `k` and `v` [length, kv_heads, head_dim] of each
    row, `q` [tokens, q_heads, head_dim] of all; `tables` their pages."""

    spec: KVSpec
    shapes: Sequence[RowShape]
    tables: list[list[int]]
    k: list[Tensor]
    v: list[Tensor]
    q: Tensor
    meta: StepMeta

    def new(self, whole: Sequence[Tensor]) -> Tensor:
        """This step's part of `k` or `v`, all rows one behind the other."""
        parts = [x[-s.tokens :] for x, s in zip(whole, self.shapes, strict=True)]
        return torch.cat(parts).contiguous()

    def fill_past(self, pool: Tensor, layer: int) -> None:
        """Put what came before this step into its pages, past the backend."""
        for shape, table, k, v in zip(self.shapes, self.tables, self.k, self.v, strict=True):
            page, offset = places(table, shape.length - shape.tokens, self.spec)
            pool[page, layer, 0, offset] = k[: len(page)]
            pool[page, layer, 1, offset] = v[: len(page)]

    def run(self, backend: AttentionBackend, layer: int) -> Tensor:
        """Plan, write, attend; [tokens, q_heads, head_dim]."""
        backend.plan(self.meta)
        return self.attend(backend, layer)

    def attend(self, backend: AttentionBackend, layer: int) -> Tensor:
        """Write and attend in a step that is planned."""
        backend.write(layer, self.new(self.k), self.new(self.v))
        out = torch.full_like(self.q, torch.nan)
        backend.run(layer, self.q, out)
        return out


def poisoned_pool(backend: AttentionBackend, num_pages: int) -> Tensor:
    """A pool of NaN: whatever is read and was not written shows."""
    return backend.alloc_pool(num_pages).fill_(torch.nan)


def pages_for(shapes: Sequence[RowShape], page_size: int) -> int:
    """Pages that hold these rows."""
    return sum(-(-shape.length // page_size) for shape in shapes)


def random_tables(
    shapes: Sequence[RowShape], page_size: int, num_pages: int, seed: int
) -> list[list[int]]:
    """A page table for each row, in no order; page 0 is nobody's."""
    counts = [-(-shape.length // page_size) for shape in shapes]
    free = iter(random.Random(seed).sample(range(1, num_pages), sum(counts)))
    return [list(islice(free, count)) for count in counts]


def random_step(
    spec: KVSpec,
    shapes: Sequence[RowShape],
    num_pages: int,
    generator: torch.Generator,
    graph_rows: int | None = None,
) -> RandomStep:
    """Keys and queries are normal; values are within 1, where bfloat16 rounds to 0.002, so
    that an error of 0.01 is none of rounding."""
    ordered = sorted(shapes, key=lambda shape: shape.tokens > 1)
    tables = random_tables(ordered, spec.page_size, num_pages, generator.initial_seed())
    heads = (spec.num_kv_heads, spec.head_dim)
    lengths = [shape.length for shape in ordered]
    k = _normal((sum(lengths), *heads), spec, generator)
    v = (_uniform((sum(lengths), *heads), spec, generator) * 2 - 1).to(spec.dtype)
    tokens = sum(shape.tokens for shape in ordered)
    q = _normal((tokens, spec.num_q_heads, spec.head_dim), spec, generator)
    meta = step_meta(ordered, tables, spec.page_size, graph_rows)
    rows_k, rows_v = (list(torch.split(x, lengths)) for x in (k, v))
    return RandomStep(spec, ordered, tables, rows_k, rows_v, q, meta)


def step_meta(
    shapes: Sequence[RowShape],
    tables: Sequence[Sequence[int]],
    page_size: int,
    graph_rows: int | None = None,
) -> StepMeta:
    """What a backend is told of rows in this order, padded to `graph_rows` for a graph."""
    padding = (graph_rows or len(shapes)) - len(shapes)
    decodes = sum(shape.tokens == 1 for shape in shapes)
    shapes, tables = [*shapes, *[RowShape(1)] * padding], [*tables, *[[0]] * padding]
    tokens, lengths = [s.tokens for s in shapes], [s.length for s in shapes]
    slots = [
        table[p // page_size] * page_size + p % page_size
        for s, table in zip(shapes, tables, strict=True)
        for p in range(s.length - s.tokens, s.length)
    ]
    return StepMeta(
        qo_indptr=_offsets(tokens),
        kv_indptr=_offsets([len(table) for table in tables]),
        kv_indices=_int32([page for table in tables for page in table]),
        last_page_len=_int32([(length - 1) % page_size + 1 for length in lengths]),
        kv_lens=_int32(lengths),
        slots=torch.tensor(slots, dtype=torch.int64),
        num_decodes=decodes,
        graph_rows=graph_rows,
    )


def places(table: Sequence[int], positions: int, spec: KVSpec) -> tuple[Tensor, Tensor]:
    """Page and offset of a row's first positions, on the device."""
    at = torch.arange(positions, device=spec.device)
    pages = torch.tensor(table, device=spec.device, dtype=torch.int64)
    return pages[at // spec.page_size], at % spec.page_size


def _normal(shape: tuple[int, ...], spec: KVSpec, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, device=spec.device).to(spec.dtype)


def _uniform(shape: tuple[int, ...], spec: KVSpec, generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device=spec.device)


def _offsets(counts: Sequence[int]) -> Tensor:
    return _int32([0, *accumulate(counts)])


def _int32(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)
