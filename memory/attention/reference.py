"""Paged attention in plain torch: gather the pages, then SDPA in float32. The oracle, and
what runs where neither FlashInfer nor the C++ kernels can."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from memory.attention.copies import BlockingCopies
from memory.attention.interface import KVSpec, Rotation, StepMeta
from memory.kernels.torch_ops import TorchOps, normed, rotated

GATHERED = 32768
"""Padded positions gathered at once for decode rows; bounds the memory that takes."""


class ReferenceAttention:
    """`AttentionBackend` in torch, on any device; a pool is [pages, layers, 2, page_size,
    kv_heads, head_dim]. Grouped query heads are folded into query rows, because `enable_gqa`
    is four times slower on a CPU."""

    name = "reference"
    capture_sizes: Sequence[int] = ()

    def __init__(self, spec: KVSpec) -> None:
        self.spec = spec
        self.ops = TorchOps()

    def alloc_pool(self, num_pages: int) -> Tensor:
        self._pool = self._pages(num_pages, self.spec.device)
        return self._pool

    def alloc_host(self, num_pages: int) -> Tensor:
        host = self._pages(num_pages, "cpu")
        self._copies = BlockingCopies(self._pool, host)
        return host

    def plan(self, meta: StepMeta) -> None:
        device, starts = self.spec.device, meta.kv_indptr.tolist()
        lens: list[int] = meta.kv_lens.tolist()
        self._lens, self._bounds = lens, meta.qo_indptr.tolist()
        pages = meta.kv_indices.to(device).long()
        self._slots = meta.slots.to(device)
        self._tables = [pages[start:end] for start, end in pairwise(starts)]
        self._num_decodes = meta.num_decodes
        self._groups = list(_groups(lens[: meta.num_decodes]))

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        slots, page_size = self._slots, self.spec.page_size
        page, offset = slots // page_size, slots % page_size
        self._pool[page, layer, 0, offset] = k
        self._pool[page, layer, 1, offset] = v

    def rope_write(
        self, layer: int, qkv: Tensor, positions: Tensor, rotation: Rotation
    ) -> Tensor:
        s = self.spec
        heads = (s.num_q_heads, s.num_kv_heads, s.num_kv_heads)
        q, k, v = torch.split_with_sizes(qkv.view(len(qkv), -1, s.head_dim), heads, dim=1)
        turned = []
        for x, weight in ((q, rotation.q_norm), (k, rotation.k_norm)):
            wide = x.float() if weight is None else normed(x.float(), weight, rotation.eps)
            turned.append(rotated(wide, rotation.table[positions]).to(s.dtype))
        self.write(layer, turned[1], v)
        return turned[0]

    def run(self, layer: int, q: Tensor, out: Tensor) -> None:
        for rows in self._groups:
            out[rows] = self._attend_rows(layer, q, rows)
        for row in range(self._num_decodes, len(self._lens)):
            start, end = self._bounds[row], self._bounds[row + 1]
            out[start:end] = self._attend_row(layer, q[start:end], row)

    def copy_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._copies.copy_out(pairs)

    def copy_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._copies.copy_in(pairs)

    def take_copy_s(self) -> float:
        return self._copies.take_copy_s()

    def fence(self) -> None:
        """Copies block, and what `plan` gets is copied or kept."""

    def _pages(self, num_pages: int, device: str) -> Tensor:
        s = self.spec
        shape = (num_pages, s.num_layers, 2, s.page_size, s.num_kv_heads, s.head_dim)
        return torch.zeros(shape, dtype=s.dtype, device=device)

    def _attend_rows(self, layer: int, q: Tensor, rows: list[int]) -> Tensor:
        """Decode rows at once, padded to the longest."""
        lens = torch.tensor([self._lens[row] for row in rows], device=q.device)
        tables = [self._tables[row] for row in rows]
        table = torch.nn.utils.rnn.pad_sequence(tables, batch_first=True)
        k, v = self._gather(layer, table, lens)
        seen = torch.arange(k.shape[2], device=q.device) < lens[:, None]
        heads, dim = self.spec.num_kv_heads, self.spec.head_dim
        folded = q[rows].view(len(rows), heads, -1, dim).float()
        out = scaled_dot_product_attention(folded, k, v, attn_mask=seen[:, None, None])
        return out.flatten(1, 2).to(q.dtype)

    def _attend_row(self, layer: int, q: Tensor, row: int) -> Tensor:
        """All tokens of one row, each up to its own position."""
        length, tokens = self._lens[row], len(q)
        whole = torch.tensor([length], device=q.device)
        k, v = self._gather(layer, self._tables[row][None], whole)
        positions = torch.arange(length - tokens, length, device=q.device)
        seen = torch.arange(k.shape[2], device=q.device) <= positions[:, None]
        heads, dim = self.spec.num_kv_heads, self.spec.head_dim
        folded = q.view(tokens, heads, -1, dim).transpose(0, 1).flatten(1, 2).float()
        mask = seen.repeat_interleave(folded.shape[1] // tokens, dim=0)
        out = scaled_dot_product_attention(folded[None], k, v, attn_mask=mask)[0]
        return out.view(heads, tokens, -1, dim).transpose(0, 1).flatten(1, 2).to(q.dtype)

    def _gather(self, layer: int, table: Tensor, lens: Tensor) -> tuple[Tensor, Tensor]:
        """float32 keys and values [rows, kv_heads, positions, head_dim]; 0 past a row's end,
        where a page may hold anything."""
        k, v = (self._pool[table, layer, i].flatten(1, 2).float() for i in (0, 1))
        places = torch.arange(k.shape[1], device=k.device)
        unused = (places >= lens[:, None])[:, :, None, None]
        k, v = k.masked_fill_(unused, 0.0), v.masked_fill_(unused, 0.0)
        return k.transpose(1, 2), v.transpose(1, 2)


def _groups(lens: Sequence[int]) -> Iterator[list[int]]:
    """Decode rows in groups of like length, none larger than `GATHERED` once padded."""
    group: list[int] = []
    for row in sorted(range(len(lens)), key=lambda row: lens[row]):
        if group and (len(group) + 1) * lens[row] > GATHERED:
            yield group
            group = []
        group.append(row)
    if group:
        yield group
