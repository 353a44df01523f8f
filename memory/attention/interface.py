"""How a model reaches attention over pages: `plan` once a step, then `write` and `run` once
a layer. See FlashInfer's paged-KV wrappers for the layout that the metadata follows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from memory.kernels.interface import LayerOps


@dataclass(frozen=True, slots=True)
class KVSpec:
    """Shape of keys and values. Grouped queries: `num_q_heads` is a multiple of
    `num_kv_heads`. Page 0 of a pool is scratch for padding rows."""

    num_layers: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int = 16
    dtype: torch.dtype = torch.float32
    device: str = "cpu"

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all layers, keys and values."""
        heads = self.num_kv_heads * self.head_dim * self.page_size
        return 2 * self.num_layers * heads * self.dtype.itemsize


@dataclass(slots=True)
class StepMeta:
    """A step's rows, decode rows (one token) first. All on the host, int32 but `slots`.

    `qo_indptr` [rows + 1] in tokens, `kv_indptr` [rows + 1] in pages, `kv_indices`
    [kv_indptr[-1]] page ids, `last_page_len` [rows] in 1..page_size, `kv_lens` [rows] with
    this step's tokens, `slots` int64 [tokens]: page * page_size + offset of each new token.

    With `graph_rows` the step is `num_decodes` decode rows, padded to so many with rows of
    one token on page 0, for a graph that was captured with as many.
    """

    qo_indptr: Tensor
    kv_indptr: Tensor
    kv_indices: Tensor
    last_page_len: Tensor
    kv_lens: Tensor
    slots: Tensor
    num_decodes: int
    graph_rows: int | None = None


@dataclass(frozen=True, slots=True)
class Rotation:
    """A layer's rotary embedding. `table` float32 [positions, head_dim], cosines first, for
    the halves of a head as coordinates; before it, where given, the RMS norm of each head of
    queries and keys: `q_norm`, `k_norm` [head_dim] in the model's dtype, `eps`."""

    table: Tensor
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None
    eps: float = 1e-6


class AttentionBackend(Protocol):
    """Paged attention and the pool's layout. A pool holds
    [pages, layers, 2, page_size, kv_heads, head_dim] in whatever order is fastest, pages in
    front."""

    name: str
    spec: KVSpec

    @property
    def ops(self) -> LayerOps:
        """The layer kernels that go with it."""

    @property
    def capture_sizes(self) -> Sequence[int]:
        """Ascending: how many rows a graph of decode rows may have. Empty: no graphs."""

    def alloc_pool(self, num_pages: int) -> Tensor:
        """Allocate and own the device pool, zero-filled."""

    def alloc_host(self, num_pages: int) -> Tensor:
        """Allocate host pages of the same shape for swapping, once the pool is there."""

    def plan(self, meta: StepMeta) -> None:
        """Once a step, before any layer; never syncs the device."""

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Store k, v [tokens, kv_heads, head_dim] into `meta.slots`."""

    def rope_write(
        self, layer: int, qkv: Tensor, positions: Tensor, rotation: Rotation
    ) -> Tensor:
        """Split qkv [tokens, (q_heads + 2 * kv_heads) * head_dim], rotate queries and keys
        to `positions` (int64 [tokens]), store keys and values into `meta.slots` and return
        the queries [tokens, q_heads, head_dim]."""

    def run(self, layer: int, q: Tensor, out: Tensor) -> None:
        """q, out [tokens, q_heads, head_dim]; causal, aligned to the end of the row;
        scale head_dim ** -0.5."""

    def copy_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy device pages to host pages; ordered before later writes to the sources."""

    def copy_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy host pages to device pages; ordered before later reads."""

    def take_copy_s(self) -> float:
        """Seconds of the copies that are done and were not told before."""

    def fence(self) -> None:
        """Wait until all copies are done and the host may reuse what it gave to `plan`."""
