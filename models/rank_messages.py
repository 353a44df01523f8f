"""What rank 0 tells the others before each step, as two flat int64 tensors: a header of fixed
length with the lengths, then everything else. No pickles, no Python per token."""

from dataclasses import dataclass

import torch
from torch import Tensor

from memory.attention.interface import StepMeta

HEADER = 8
_PASS, _OUT, _IN = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass: `tokens`, `positions` and `wanted` as `Llama.hidden` takes them."""

    meta: StepMeta
    tokens: Tensor
    positions: Tensor
    wanted: Tensor

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """For `Llama.hidden`."""
        return self.tokens, self.positions, self.wanted


@dataclass(frozen=True, slots=True)
class Copies:
    """Pages to copy, (source, destination): out of the pool to the host, or in."""

    out: bool
    pairs: tuple[tuple[int, int], ...]


Message = Pass | Copies


def packed(message: Message) -> tuple[Tensor, Tensor]:
    """Header [HEADER] and payload, int64 on the host."""
    if isinstance(message, Copies):
        payload = torch.tensor(message.pairs, dtype=torch.int64).flatten()
        return _header(_OUT if message.out else _IN, len(payload)), payload
    m = message.meta
    parts = [message.tokens, message.positions, m.slots, m.qo_indptr, m.kv_indptr]
    parts += [m.last_page_len, m.kv_lens, m.kv_indices, message.wanted]
    payload = torch.cat([part.cpu().long() for part in parts])
    rows, graph_rows = len(m.kv_lens), m.graph_rows or 0
    sizes = (len(message.tokens), rows, len(m.kv_indices), len(message.wanted))
    return _header(_PASS, len(payload), *sizes, m.num_decodes, graph_rows), payload


def payload_size(header: Tensor) -> int:
    """How many numbers follow."""
    return int(header[1])


def unpacked(header: Tensor, payload: Tensor) -> Message:
    """The inverse of `packed`."""
    kind, _, tokens, rows, pages, wanted, num_decodes, graph_rows = header.tolist()
    if kind != _PASS:
        pairs = tuple((source, to) for source, to in payload.view(-1, 2).tolist())
        return Copies(kind == _OUT, pairs)
    sizes = (tokens, tokens, tokens, rows + 1, rows + 1, rows, rows, pages, wanted)
    ids, positions, slots, qo, kv, last, lens, indices, places = torch.split_with_sizes(
        payload, sizes
    )
    meta = StepMeta(
        qo_indptr=qo.int(),
        kv_indptr=kv.int(),
        kv_indices=indices.int(),
        last_page_len=last.int(),
        kv_lens=lens.int(),
        slots=slots,
        num_decodes=num_decodes,
        graph_rows=graph_rows or None,
    )
    return Pass(meta, ids, positions, places)


def _header(*numbers: int) -> Tensor:
    return torch.tensor(numbers + (0,) * (HEADER - len(numbers)), dtype=torch.int64)
