"""Paged attention on the C++ kernels.

A row's result has the same bits whatever its batch mates, chunks, page size and threads: the
kernel goes over blocks of 16 absolute positions and never splits a row's context.

The pool is [pages, layers, 2, kv_heads, page_size, head_dim]. A head's part of a page is one
piece: against heads next to each other in a position, a decode step over all layers of the
default model takes a quarter less time in float32 and half in bfloat16. Layers in front of
pages were no faster, and with pages in front a page is one copy.
"""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from memory.attention.copies import BlockingCopies
from memory.attention.interface import KVSpec, Rotation, StepMeta
from memory.kernels.library import Attend, Pool, Rope, load
from memory.kernels.ops import DTYPES, NativeOps, expect

MAX_HEAD_DIM = 256
TILE_ROWS = 32


def unsupported(spec: KVSpec) -> str | None:
    """Why the kernels cannot serve this model, if so."""
    if spec.device != "cpu":
        return f"the C++ kernels run on a CPU, not on {spec.device}"
    if spec.dtype not in DTYPES:
        return f"the C++ kernels have no {spec.dtype}"
    if spec.head_dim % 8 or not 0 < spec.head_dim <= MAX_HEAD_DIM:
        return f"head_dim {spec.head_dim} is not a multiple of 8 up to {MAX_HEAD_DIM}"
    return None


class CpuAttention:
    """`AttentionBackend` for float32 and bfloat16; sums are float32. Runs on as many threads
    as torch uses."""

    name = "cpu"
    capture_sizes: Sequence[int] = ()

    def __init__(self, spec: KVSpec) -> None:
        reason = unsupported(spec)
        if reason is not None:
            raise ValueError(reason)
        self.spec = spec
        self.ops = NativeOps()
        self._library = load()
        self._attend = Attend(group=spec.num_q_heads // spec.num_kv_heads)
        self._rope = Rope(q_heads=spec.num_q_heads)

    def alloc_pool(self, num_pages: int) -> Tensor:
        s = self.spec
        self._pool = self._pages(num_pages)
        self._library.walkway_huge_pages(self._pool.data_ptr(), self._pool.nbytes)
        self._attend.pool = self._rope.pool = Pool(
            page_stride=self._pool.stride(0),
            token_stride=s.head_dim,
            head_stride=s.page_size * s.head_dim,
            v_offset=self._pool.stride(2),
            page_size=s.page_size,
            kv_heads=s.num_kv_heads,
            head_dim=s.head_dim,
            is_bf16=s.dtype == torch.bfloat16,
        )
        return self._pool

    def alloc_host(self, num_pages: int) -> Tensor:
        host = self._pages(num_pages)
        self._copies = BlockingCopies(self._pool, host)
        return host

    def plan(self, meta: StepMeta) -> None:
        """ValueError for a page table that is too short or leaves the pool."""
        self._meta = meta  # keeps alive what the kernels get addresses of
        a, r = self._attend, self._rope
        a.qo_indptr = _address("qo_indptr", meta.qo_indptr)
        a.kv_indptr = _address("kv_indptr", meta.kv_indptr)
        a.kv_indices = _address("kv_indices", meta.kv_indices)
        a.kv_lens = _address("kv_lens", meta.kv_lens)
        r.tokens = len(meta.slots)
        expect("slots", meta.slots, (r.tokens,), torch.int64)
        r.slots = meta.slots.data_ptr()
        a.threads = r.threads = torch.get_num_threads()
        a.num_tiles = self._cut(r.tokens)

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        slots, page_size = self._meta.slots, self.spec.page_size
        page, offset = slots // page_size, slots % page_size
        self._pool[page, layer, 0, :, offset] = k
        self._pool[page, layer, 1, :, offset] = v

    def rope_write(
        self, layer: int, qkv: Tensor, positions: Tensor, rotation: Rotation
    ) -> Tensor:
        s, r = self.spec, self._rope
        heads = s.num_q_heads + 2 * s.num_kv_heads
        expect("qkv", qkv, (r.tokens, heads * s.head_dim), s.dtype)
        expect("positions", positions, (r.tokens,), torch.int64)
        expect("table", rotation.table, (len(rotation.table), s.head_dim), torch.float32)
        q = torch.empty(r.tokens, s.num_q_heads, s.head_dim, dtype=s.dtype)
        r.pool.base = self._base(layer)
        r.qkv, r.q_out, r.positions = qkv.data_ptr(), q.data_ptr(), positions.data_ptr()
        r.table, r.table_rows = rotation.table.data_ptr(), len(rotation.table)
        r.q_norm = self._head_norm("q_norm", rotation.q_norm)
        r.k_norm = self._head_norm("k_norm", rotation.k_norm)
        r.eps, r.num_slots = rotation.eps, len(self._pool) * s.page_size
        if self._library.walkway_rope(ctypes.byref(r)) != 0:
            raise ValueError("a position outside the table or a slot outside the pool")
        return q

    def run(self, layer: int, q: Tensor, out: Tensor) -> None:
        s, a = self.spec, self._attend
        shape = (self._rope.tokens, s.num_q_heads, s.head_dim)
        expect("q", q, shape, s.dtype)
        expect("out", out, shape, s.dtype)
        a.pool.base, a.q, a.out = self._base(layer), q.data_ptr(), out.data_ptr()
        self._library.walkway_attend(ctypes.byref(a))

    def copy_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._copies.copy_out(pairs)

    def copy_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._copies.copy_in(pairs)

    def take_copy_s(self) -> float:
        return self._copies.take_copy_s()

    def fence(self) -> None:
        """Nothing runs beside the host."""

    def _pages(self, num_pages: int) -> Tensor:
        s = self.spec
        shape = (num_pages, s.num_layers, 2, s.num_kv_heads, s.page_size, s.head_dim)
        return torch.zeros(shape, dtype=s.dtype)

    def _base(self, layer: int) -> int:
        return self._pool.data_ptr() + layer * self._pool.stride(1) * self._pool.itemsize

    def _head_norm(self, name: str, weight: Tensor | None) -> int | None:
        if weight is None:
            return None
        expect(name, weight, (self.spec.head_dim,), self.spec.dtype)
        return weight.data_ptr()

    def _cut(self, tokens: int) -> int:
        """Tiles of this step, into a buffer of their own; how many there are."""
        a, rows = self._attend, len(self._meta.kv_lens)
        capacity = rows + tokens * a.group // TILE_ROWS
        self._tiles = torch.empty(capacity, 4, dtype=torch.int32)
        a.tiles = self._tiles.data_ptr()
        count: int = self._library.walkway_tiles(
            ctypes.byref(a), rows, tokens, len(self._meta.kv_indices), len(self._pool), capacity
        )
        if count < 0:
            raise ValueError(f"row {-1 - count} of the step: its page table does not fit it")
        return count


def _address(name: str, tensor: Tensor) -> int:
    expect(name, tensor, (len(tensor),), torch.int32)
    return tensor.data_ptr()
