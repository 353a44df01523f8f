"""CUDA graphs of the steps that only decode: the host starts one thing a step instead of
some hundred kernels.

A graph is a recording of kernels with their addresses, so whatever differs between steps is
in tensors that stay where they are: token ids and positions here, page tables in what
`AttentionBackend.plan` keeps for `graph_rows`. A step is padded with rows on page 0 up to
the next size that was captured.
"""

from bisect import bisect_left
from collections.abc import Callable

import torch
from torch import Tensor

from memory.attention.interface import AttentionBackend
from models.shard import Model
from models.step_inputs import step_inputs

Work = Callable[[], object]
Capture = Callable[[Work], Work]
"""Records what the work does, and returns what does it again with the same tensors."""


class CudaCapture:
    """A `Capture` for one device. All graphs share a memory pool, which is safe as long as
    they run one after the other and nothing that one of them allocated is read later. They
    share a stream too: torch keeps freed memory, and a workspace of cuBLAS, for each. See
    torch.cuda.graph."""

    def __init__(self, device: str) -> None:
        self._stream = torch.cuda.Stream(torch.device(device))  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        ours, aside = torch.cuda.current_stream(self._stream.device), self._stream
        aside.wait_stream(ours)
        # Libraries set themselves up in a first run, with what a capture does not allow.
        with torch.cuda.stream(aside):
            work()
        ours.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, self._pool, aside, capture_error_mode="thread_local"):
            work()
        return graph.replay


class DecodeGraphs:
    """Graphs for up to `max_rows` rows. Allocates what all of them share: `capture` has to
    come before the first replay, and after the pool was allocated."""

    def __init__(self, model: Model, attention: AttentionBackend, max_rows: int) -> None:
        sizes, device = attention.capture_sizes, attention.spec.device
        self.sizes = tuple(sizes[: bisect_left(sizes, max_rows) + 1])
        self._model = model
        self._attention = attention
        most = max(self.sizes, default=0)
        self._tokens = torch.zeros(most, dtype=torch.int64, device=device)
        self._positions = torch.zeros(most, dtype=torch.int64, device=device)
        self._every = torch.arange(most, device=device)  # a graph keeps its address alone
        self._logits = torch.zeros(most, model.vocab_size, device=device)
        self._replays: dict[int, Work] = {}

    def capture(self, capture: Capture) -> None:
        """Record every size, the largest first: the others fit into its memory."""
        page_size = self._attention.spec.page_size
        with torch.inference_mode():
            for size in reversed(self.sizes):
                self._attention.plan(step_inputs((), page_size, size).meta)
                self._replays[size] = capture(self._work(size))
        self._attention.fence()

    def size(self, rows: int) -> int | None:
        """The smallest graph that takes so many rows."""
        at = bisect_left(self.sizes, rows)
        return self.sizes[at] if at < len(self.sizes) else None

    def load(self, size: int, tokens: Tensor, positions: Tensor) -> None:
        """What the next replay computes, int64 [size] each, padding included."""
        self._tokens[:size].copy_(tokens)
        self._positions[:size].copy_(positions)

    def replay(self, size: int) -> Tensor:
        """float32 logits [size, vocab] of the step that was planned last, with as many
        `graph_rows`. They hold until the next replay."""
        self._replays[size]()
        return self._logits[:size]

    def _work(self, size: int) -> Work:
        tokens, positions = self._tokens[:size], self._positions[:size]
        logits, every = self._logits[:size], self._every[:size]

        def work() -> None:
            logits.copy_(self._model.logits(self._model.hidden(tokens, positions, every)))

        return work
