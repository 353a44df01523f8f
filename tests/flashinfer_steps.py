"""Steps for the FlashInfer backend beside the reference, over the same pool."""

from collections.abc import Sequence

import torch
from torch import Tensor

from memory.attention.flashinfer import FlashInferAttention
from memory.attention.interface import KVSpec, StepMeta
from memory.attention.reference import ReferenceAttention
from models.batch import RequestId, Row, Sampling
from models.step_inputs import step_inputs

PAGES = 300
CLOSE = {"rtol": 0, "atol": 2**-6}
"""One place of bfloat16 at values up to 4."""


def make_spec(
    page_size: int = 16, group: int = 3, dtype: torch.dtype = torch.bfloat16
) -> KVSpec:
    return KVSpec(
        num_layers=2,
        num_q_heads=2 * group,
        num_kv_heads=2,
        head_dim=64,
        page_size=page_size,
        dtype=dtype,
    )


def make_backend(spec: KVSpec, max_rows: int = 16, **options: bool) -> FlashInferAttention:
    return FlashInferAttention(spec, max_rows=max_rows, **options)


def make_meta(
    spec: KVSpec, rows: Sequence[tuple[int, int]], graph_rows: int | None = None, seed: int = 0
) -> StepMeta:
    """Rows (tokens, length with them) on pages of their own, in no order."""
    order = torch.randperm(PAGES - 1, generator=torch.Generator().manual_seed(seed)).tolist()
    made = []
    for place, (tokens, length) in enumerate(rows):
        pages = [1 + order.pop() for _ in range(-(-length // spec.page_size))]
        row = Row(
            request=RequestId(place),
            tokens=[7] * tokens,
            start=length - tokens,
            pages=pages,
            samples=True,
            sampling=Sampling(),
            prompt=[7],
            output=[],
        )
        made.append(row)
    return step_inputs(made, spec.page_size, graph_rows).meta


class Beside:
    """Both backends with the same poisoned pool: what no row reads is NaN."""

    def __init__(self, spec: KVSpec, backend: FlashInferAttention) -> None:
        self.spec, self.backend = spec, backend
        self.reference = ReferenceAttention(spec)
        self.pool = backend.alloc_pool(PAGES)
        self.expected_pool = self.reference.alloc_pool(PAGES)
        self.expected_pool.fill_(torch.nan)
        self.pool.fill_(torch.nan)

    def fill(self, meta: StepMeta, seed: int = 0) -> None:
        """Random keys and values where the step's rows read, and in page 0's first slot."""
        random = torch.Generator().manual_seed(seed)
        starts = meta.kv_indptr.tolist()
        self.expected_pool.fill_(torch.nan)
        self.expected_pool[0, :, :, 0] = 0
        for row, length in enumerate(meta.kv_lens.tolist()):
            for page in meta.kv_indices[starts[row] : starts[row + 1]].tolist():
                used = min(length, self.spec.page_size)
                part = self.expected_pool[page, :, :, :used]
                part.copy_(torch.randn(part.shape, generator=random))
                length -= used
        self.pool.copy_(self.expected_pool)

    def step(self, meta: StepMeta) -> tuple[Tensor, Tensor]:
        """Write, then attend, in both layers: what came out, and what should have."""
        outs, expected = [], []
        for backend in (self.backend, self.reference):
            backend.plan(meta)
        for layer in range(self.spec.num_layers):
            q, k, v = self.vectors(len(meta.slots), layer)
            for backend, into in ((self.backend, outs), (self.reference, expected)):
                backend.write(layer, k, v)
                into.append(torch.empty_like(q))
                backend.run(layer, q, into[-1])
        return torch.stack(outs), torch.stack(expected)

    def vectors(self, tokens: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        random = torch.Generator().manual_seed(seed)
        s = self.spec
        q, k, v = (
            torch.randn(tokens, heads, s.head_dim, generator=random).to(s.dtype)
            for heads in (s.num_q_heads, s.num_kv_heads, s.num_kv_heads)
        )
        return q, k, v
