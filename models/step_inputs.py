"""A step's rows as tensors: token ids, positions and the page tables that attention needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from memory.attention.interface import StepMeta
from models.batch import Row
from models.page_tables import PageTables

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepInputs:
    """`rows` in computing order, decode rows first; `tokens` and `positions` int64 [tokens]
    in that order; `ends` has the index behind each row's last token. All on the host.
    Padding counts in `tokens`, `positions` and `meta` alone."""

    rows: tuple[Row, ...]
    tokens: Tensor
    positions: Tensor
    ends: tuple[int, ...]
    meta: StepMeta


def step_inputs(
    rows: Sequence[Row],
    page_size: int,
    graph_rows: int | None = None,
    kept: PageTables | None = None,
) -> StepInputs:
    """Lay out a step of at least one row, or, for a graph, of up to `graph_rows` rows of one
    token, padded to as many with token 0 at position 0 in page 0. Work grows with rows in
    Python and with tokens and pages only in numpy; `kept`, the same from step to step, spares
    reading all pages again."""
    ordered = sorted(rows, key=lambda row: len(row.tokens) > 1)
    padding = [0] * ((graph_rows or len(rows)) - len(rows))
    counts = np.array([len(row.tokens) for row in ordered] + [1] * len(padding), np.int64)
    starts = np.array([row.start for row in ordered] + padding, np.int64)
    tokens = np.fromiter(
        chain(chain.from_iterable(row.tokens for row in ordered), padding), np.int64
    )
    kv_lens = starts + counts
    num_pages = -(-kv_lens // page_size)
    whole = (kept or PageTables()).of(ordered)
    counted = num_pages[: len(rows)].tolist()
    tables = [table[:n] for table, n in zip(whole, counted, strict=True)]
    pages = np.concatenate([*tables, np.array(padding, np.int32)])
    qo_indptr, kv_indptr = _offsets(counts), _offsets(num_pages)
    assert len(pages) == kv_indptr[-1], "a page table does not cover its row"
    assert graph_rows in (None, len(tokens)), "a graph takes rows of one token"
    positions = np.arange(len(tokens)) + np.repeat(starts - qo_indptr[:-1], counts)
    table = np.repeat(kv_indptr[:-1], counts)
    places = pages[table + positions // page_size].astype(np.int64)
    slots = places * page_size + positions % page_size
    meta = StepMeta(
        qo_indptr=_int32(qo_indptr),
        kv_indptr=_int32(kv_indptr),
        kv_indices=_int32(pages),
        last_page_len=_int32((kv_lens - 1) % page_size + 1),
        kv_lens=_int32(kv_lens),
        slots=torch.from_numpy(slots),
        num_decodes=sum(len(row.tokens) == 1 for row in ordered),
        graph_rows=graph_rows,
    )
    return StepInputs(
        rows=tuple(ordered),
        tokens=torch.from_numpy(tokens),
        positions=torch.from_numpy(positions),
        ends=tuple(qo_indptr[1 : len(rows) + 1].tolist()),
        meta=meta,
    )


def _offsets(counts: Ids) -> Ids:
    return np.concatenate(([0], np.cumsum(counts)))


def _int32(values: Ids) -> Tensor:
    return torch.from_numpy(values.astype(np.int32))
