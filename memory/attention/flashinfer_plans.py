"""FlashInfer's wrappers, each planned at most once a step and run once a layer.

`fa2` always: `auto` picks a kernel by the batch, so that numerics and compiled modules would
follow the load. All arguments by keyword, because their order changes between versions, and
dtypes always, because the default is fp16.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from flashinfer import (
    BatchDecodeWithPagedKVCacheWrapper,
    BatchPrefillWithPagedKVCacheWrapper,
    utils,
)
from torch import Tensor

from memory.attention.flashinfer_device import Device, Event
from memory.attention.interface import KVSpec, StepMeta


@dataclass(frozen=True, slots=True)
class Shared:
    """What all wrappers of a backend have in common. `workspace` uint8 on the device, zero
    at first; `split_kv`: whether a row's context may be split over several blocks, which is
    faster for few rows and lets a row's bits depend on its batch mates."""

    spec: KVSpec
    device: Device
    workspace: Tensor
    split_kv: bool = True


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of a step, offsets from 0, as in `StepMeta`, on the host; but
    `kv_indices` on the device. A plan stages what is copied of them."""

    qo_indptr: Tensor
    kv_indptr: Tensor
    kv_indices: Tensor
    last_page_len: Tensor
    kv_lens: Tensor


def rows_of(meta: StepMeta, kv_indices: Tensor, first: int, end: int) -> Rows:
    """Rows `first` to `end` (exclusive) of a step; `kv_indices` those of the whole step."""
    qo, kv = (x[first : end + 1] for x in (meta.qo_indptr, meta.kv_indptr))
    return Rows(
        qo_indptr=qo - qo[0],
        kv_indptr=kv - kv[0],
        kv_indices=kv_indices[int(kv[0]) : int(kv[-1])],
        last_page_len=meta.last_page_len[first:end],
        kv_lens=meta.kv_lens[first:end],
    )


class Plan(Protocol):
    def plan(self, rows: Rows) -> None: ...

    def run(self, q: Tensor, kv: Tensor, out: Tensor) -> None:
        """q, out [tokens, q_heads, head_dim]; kv [pages, 2, page_size, kv_heads, head_dim],
        a layer's strided view of the pool."""


class PrefillPlan:
    """Rows of any number of tokens, the last at the end of its row."""

    def __init__(self, shared: Shared) -> None:
        self._spec, self._split_kv = shared.spec, shared.split_kv
        self._staged, self._fence = shared.device.staged, shared.device.event()
        self._wrapper = BatchPrefillWithPagedKVCacheWrapper(
            float_workspace_buffer=shared.workspace, kv_layout="NHD", backend="fa2"
        )

    def plan(self, rows: Rows) -> None:
        s = self._spec
        with _fenced(self._fence):
            self._wrapper.plan(
                qo_indptr=self._staged(rows.qo_indptr),
                paged_kv_indptr=self._staged(rows.kv_indptr),
                paged_kv_indices=rows.kv_indices,
                paged_kv_last_page_len=self._staged(rows.last_page_len),
                seq_lens=self._staged(rows.kv_lens),
                num_qo_heads=s.num_q_heads,
                num_kv_heads=s.num_kv_heads,
                head_dim_qk=s.head_dim,
                page_size=s.page_size,
                causal=True,
                sm_scale=s.head_dim**-0.5,
                q_data_type=s.dtype,
                kv_data_type=s.dtype,
                o_data_type=s.dtype,
                disable_split_kv=not self._split_kv,
            )

    def run(self, q: Tensor, kv: Tensor, out: Tensor) -> None:
        self._wrapper.run(q=q, paged_kv_cache=kv, out=out)


@dataclass(frozen=True, slots=True)
class GraphBuffers:
    """int32 on the device, where a captured graph of so many rows reads them at each replay:
    `indptr` [rows + 1], `indices` for the largest page tables, `last_page_len` [rows]."""

    indptr: Tensor
    indices: Tensor
    last_page_len: Tensor


class DecodePlan:
    """Rows of one token on the tensor-core kernel, which is the prefill kernel: one module,
    and any number of query heads to a key head. With `buffers`, for a CUDA graph: `run` may
    be captured, and `plan` before a replay renews what it reads."""

    def __init__(self, shared: Shared, buffers: GraphBuffers | None = None) -> None:
        self._spec, self._split_kv = shared.spec, shared.split_kv
        self._staged, self._fence = shared.device.staged, shared.device.event()
        self._wrapper = BatchDecodeWithPagedKVCacheWrapper(
            float_workspace_buffer=shared.workspace,
            kv_layout="NHD",
            use_cuda_graph=buffers is not None,
            use_tensor_cores=True,
            paged_kv_indptr_buffer=buffers and buffers.indptr,
            paged_kv_indices_buffer=buffers and buffers.indices,
            paged_kv_last_page_len_buffer=buffers and buffers.last_page_len,
            backend="fa2",
        )

    def plan(self, rows: Rows) -> None:
        s = self._spec
        with _fenced(self._fence):
            self._wrapper.plan(
                indptr=self._staged(rows.kv_indptr),
                indices=rows.kv_indices,
                last_page_len=self._staged(rows.last_page_len),
                seq_lens=rows.kv_lens,  # read on the host alone
                num_qo_heads=s.num_q_heads,
                num_kv_heads=s.num_kv_heads,
                head_dim=s.head_dim,
                page_size=s.page_size,
                sm_scale=s.head_dim**-0.5,
                q_data_type=s.dtype,
                kv_data_type=s.dtype,
                o_data_type=s.dtype,
                disable_split_kv=not self._split_kv,
            )

    def run(self, q: Tensor, kv: Tensor, out: Tensor) -> None:
        self._wrapper.run(q=q, paged_kv_cache=kv, out=out)


@contextmanager
def _fenced(event: Event) -> Iterator[None]:
    """FlashInfer copies a plan from one pinned buffer a wrapper and does not wait for it:
    planned again before that, the device would get half of each."""
    event.synchronize()
    try:
        yield
    finally:
        event.record()


def stage_ranges(device: Device, max_rows: int) -> None:
    """Put the ranges that a decode plan copies as its query offsets into staged memory: from
    where FlashInfer keeps them the copy would wait for all that the stream has to do."""
    size = 1
    while size <= 2 * max_rows:
        utils._cache_buf[f"range_{size}", "cpu"] = device.staged(
            torch.arange(size, dtype=torch.int32)
        )
        size *= 2
