"""Paged attention on FlashInfer's `fa2` kernels, on a GPU of compute capability 8.0 or more.

Needs flashinfer-python 0.6.18.post1 to 0.7.x; importing this imports it, which takes seconds
and writes to FLASHINFER_WORKSPACE_BASE. Kernels are compiled at the first use of a shape
unless they were before (`memory.attention.flashinfer_kernels`).
"""

from collections.abc import Sequence

import torch
from flashinfer.rope import apply_rope_with_cos_sin_cache_inplace
from torch import Tensor
from torch.nn.functional import rms_norm

from memory.attention.flashinfer_device import device_for
from memory.attention.flashinfer_ops import FlashInferOps
from memory.attention.flashinfer_plans import (
    DecodePlan,
    GraphBuffers,
    Plan,
    PrefillPlan,
    Shared,
    rows_of,
    stage_ranges,
)
from memory.attention.flashinfer_workspace import workspace_bytes
from memory.attention.interface import KVSpec, Rotation, StepMeta
from memory.attention.side_copies import SideCopies, streams_for

HEAD_DIMS = (64, 128, 256)
CAPABILITY = (8, 0)
SPLIT_DECODES = 8
"""From so many decode rows on, a step with prefill rows is two launches: in one, the decode
rows would be computed in the tiles that suit the mean of all rows."""


def unsupported(spec: KVSpec) -> str | None:
    """Why FlashInfer cannot serve this model on this device, if so."""
    if spec.dtype not in (torch.bfloat16, torch.float16):
        return f"FlashInfer has no {spec.dtype}, only bfloat16 and float16"
    if spec.head_dim not in HEAD_DIMS:
        return f"FlashInfer has no head_dim {spec.head_dim}, only {HEAD_DIMS}"
    if spec.num_q_heads % spec.num_kv_heads:
        return f"{spec.num_q_heads} query heads are no multiple of {spec.num_kv_heads}"
    if torch.device(spec.device).type != "cuda":
        return None
    capability = torch.cuda.get_device_capability(spec.device)
    if capability < CAPABILITY:
        return "FlashInfer needs compute capability 8.0, the GPU has {}.{}".format(*capability)
    return None


class FlashInferAttention:
    """`AttentionBackend`; a pool is [pages, layers, 2, page_size, kv_heads, head_dim].

    A step runs as one launch a layer, or two (`SPLIT_DECODES`); its metadata is copied to
    the device once. Everything happens on the stream that is current when it is called.

    `max_rows` bounds `capture_sizes`, and `max_pages_per_row` the page tables of a graph
    (None: all pages of the pool). Each wrapper, of which there is one for a capture size and
    two more, takes 8 MiB on the device and 8 MiB of pinned memory. `batch_invariant`: no
    context is split and decode rows are launched by themselves, so that their bits follow
    from their own tokens; slower at few rows. A prefill row's may still follow the mean
    length of the step's prefill rows.

    ValueError for a spec that is `unsupported`.
    """

    name = "flashinfer"

    def __init__(
        self,
        spec: KVSpec,
        *,
        max_rows: int = 256,
        max_pages_per_row: int | None = None,
        batch_invariant: bool = False,
    ) -> None:
        reason = unsupported(spec)
        if reason is not None:
            raise ValueError(reason)
        self.spec = spec
        self.ops = FlashInferOps()
        self._device = device_for(spec.device)
        self._max_rows, self._max_pages_per_row = max_rows, max_pages_per_row
        self._split_decodes = 1 if batch_invariant else SPLIT_DECODES
        size = workspace_bytes(spec, max_rows, self._device.multiprocessors)
        workspace = torch.zeros(size, dtype=torch.uint8, device=spec.device)
        self._shared = Shared(spec, self._device, workspace, split_kv=not batch_invariant)
        self._prefill = PrefillPlan(self._shared)
        self._decode = DecodePlan(self._shared)
        stage_ranges(self._device, max_rows)

    @property
    def capture_sizes(self) -> Sequence[int]:
        sizes = (1, 2, 4, *range(8, self._max_rows + 1, 8))
        return [rows for rows in sizes if rows <= self._max_rows]

    def alloc_pool(self, num_pages: int) -> Tensor:
        s, rows = self.spec, self._max_rows
        self._pool = torch.zeros(self._shape(num_pages), dtype=s.dtype, device=s.device)
        widest = min(self._max_pages_per_row or num_pages, num_pages)
        self._graph = GraphBuffers(
            *(
                torch.zeros(size, dtype=torch.int32, device=s.device)
                for size in (rows + 1, rows * widest, rows)
            )
        )
        self._graph_places = torch.zeros(2 * rows, dtype=torch.int64, device=s.device)
        self._graph_plans: dict[int, DecodePlan] = {}
        self._copies: SideCopies | None = None
        return self._pool

    def alloc_host(self, num_pages: int) -> Tensor:
        """After `alloc_pool`; in pinned memory."""
        host = self._device.zeros(self._shape(num_pages), self.spec.dtype)
        self._copies = SideCopies(self._pool, host, streams_for(self.spec.device))
        return host

    def plan(self, meta: StepMeta) -> None:
        """ValueError for a page table that is too short or leaves the pool, and for a graph
        of another number of rows than a `capture_sizes` one. A step without rows is none."""
        self._check(meta)
        if self._copies is not None:
            self._copies.before_compute(meta.kv_indices)
        slots, size = meta.slots, self.spec.page_size
        places = self._device.staged(torch.stack((slots // size, slots % size)))
        indices = self._moved(self._device.staged(meta.kv_indices))
        if meta.graph_rows is None:
            self._places = self._moved(places)
            self._plan_eager(meta, indices)
        else:
            self._places = self._graph_places[: places.numel()].view_as(places)
            self._places.copy_(places, non_blocking=True)
            self._plan_graph(meta, indices, meta.graph_rows)

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        self._store(layer, torch.stack((k, v), dim=1))

    def rope_write(
        self, layer: int, qkv: Tensor, positions: Tensor, rotation: Rotation
    ) -> Tensor:
        """Overwrites qkv and returns a view of it. Positions are not checked."""
        s, tokens = self.spec, len(qkv)
        heads = qkv.view(tokens, s.num_q_heads + 2 * s.num_kv_heads, s.head_dim)
        counts = (s.num_q_heads, s.num_kv_heads, s.num_kv_heads)
        q, k, _ = torch.split_with_sizes(heads, counts, dim=1)
        if not tokens:
            return q
        for x, weight in ((q, rotation.q_norm), (k, rotation.k_norm)):
            if weight is not None:
                x.copy_(rms_norm(x, weight.shape, weight, rotation.eps))
        widths = [count * s.head_dim for count in counts]
        flat_q, flat_k, _ = torch.split_with_sizes(qkv, widths, dim=1)
        apply_rope_with_cos_sin_cache_inplace(
            positions=positions,
            query=flat_q,
            key=flat_k,
            head_size=s.head_dim,
            cos_sin_cache=rotation.table,
            is_neox=True,
        )
        kv = heads[:, s.num_q_heads :].view(tokens, 2, s.num_kv_heads, s.head_dim)
        self._store(layer, kv)
        return q

    def run(self, layer: int, q: Tensor, out: Tensor) -> None:
        kv = self._pool[:, layer]
        for plan, start, end in self._launches:
            plan.run(q[start:end], kv, out[start:end])

    def copy_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._side_copies().copy_out(pairs)

    def copy_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._side_copies().copy_in(pairs)

    def take_copy_s(self) -> float:
        return self._side_copies().take_copy_s()

    def fence(self) -> None:
        """`plan` keeps nothing of what it gets, so only copies are waited for."""
        if self._copies is not None:
            self._copies.fence()

    def _shape(self, num_pages: int) -> tuple[int, ...]:
        s = self.spec
        return (num_pages, s.num_layers, 2, s.page_size, s.num_kv_heads, s.head_dim)

    def _moved(self, staged: Tensor) -> Tensor:
        return staged.to(self.spec.device, non_blocking=True)

    def _store(self, layer: int, kv: Tensor) -> None:
        """kv [tokens, 2, kv_heads, head_dim]."""
        page, offset = self._places
        self._pool[:, layer][page, :, offset] = kv

    def _side_copies(self) -> SideCopies:
        if self._copies is None:
            raise ValueError("a swap without host pages: alloc_host was not called")
        return self._copies

    def _plan_eager(self, meta: StepMeta, indices: Tensor) -> None:
        rows, decodes = len(meta.kv_lens), meta.num_decodes
        alone = decodes == rows or decodes >= self._split_decodes
        cut = decodes if alone else 0
        self._launches: list[tuple[Plan, int, int]] = []
        if cut:
            self._decode.plan(rows_of(meta, indices, 0, cut))
            self._launches.append((self._decode, 0, cut))
        if cut < rows:
            self._prefill.plan(rows_of(meta, indices, cut, rows))
            self._launches.append((self._prefill, cut, len(meta.slots)))

    def _plan_graph(self, meta: StepMeta, indices: Tensor, rows: int) -> None:
        plan = self._graph_plans.get(rows)
        if plan is None:
            indptr, last = self._graph.indptr[: rows + 1], self._graph.last_page_len[:rows]
            buffers = GraphBuffers(indptr, self._graph.indices, last)
            plan = self._graph_plans[rows] = DecodePlan(self._shared, buffers)
        plan.plan(rows_of(meta, indices, 0, rows))
        self._launches = [(plan, 0, rows)]

    def _check(self, meta: StepMeta) -> None:
        rows, size = len(meta.kv_lens), self.spec.page_size
        if meta.graph_rows is not None:
            if meta.graph_rows not in self.capture_sizes:
                raise ValueError(f"{meta.graph_rows} rows are none of {self.capture_sizes}")
            if rows != meta.graph_rows or len(meta.slots) != rows:
                raise ValueError(f"a graph of {meta.graph_rows} rows got {rows}")
        covered = torch.equal((meta.kv_lens + (size - 1)) // size, meta.kv_indptr.diff())
        if not covered or len(meta.kv_indices) != int(meta.kv_indptr[-1]):
            raise ValueError("a page table does not fit its row")
        pages = len(self._pool)
        if rows and not 0 <= int(meta.kv_indices.amin()) <= int(meta.kv_indices.amax()) < pages:
            raise ValueError(f"a page table leaves the pool of {pages} pages")
