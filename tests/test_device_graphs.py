"""What a capture asks of torch, where there is no GPU to capture on."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import pytest
import torch

from models.graphs import CudaCapture


@dataclass
class Stream:
    """One of torch's; what works on it is told apart by which is entered."""

    device: torch.device
    entered: int = 0

    def wait_stream(self, other: "Stream") -> None: ...


class Graph:
    def replay(self) -> None: ...


@dataclass
class Torch:
    """The parts of torch.cuda that a capture touches."""

    made: list[Stream] = field(default_factory=list)
    captures: list[tuple[object, Stream]] = field(default_factory=list)
    pools: int = 0

    def stream_of(self, device: torch.device) -> Stream:
        self.made.append(Stream(device))
        return self.made[-1]

    def enter(self, stream: Stream) -> AbstractContextManager[None]:
        stream.entered += 1
        return nullcontext()

    def graph(
        self, graph: Graph, pool: object, stream: Stream, capture_error_mode: str
    ) -> AbstractContextManager[None]:
        self.captures.append((pool, stream))
        return nullcontext()

    def pool(self) -> int:
        self.pools += 1
        return self.pools


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Torch:
    cuda, current = Torch(), Stream(torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "Stream", cuda.stream_of)
    monkeypatch.setattr(torch.cuda, "stream", cuda.enter)
    monkeypatch.setattr(torch.cuda, "graph", cuda.graph)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", cuda.pool)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    return cuda


def test_all_graphs_of_a_capture_share_one_stream_and_one_memory_pool(cuda: Torch) -> None:
    capture, runs = CudaCapture("cuda"), []
    for size in (8, 4, 2):
        capture(lambda size=size: runs.append(size))
    (stream,) = cuda.made
    assert stream.entered == 3  # what warms up leaves its memory where captures find it
    assert cuda.captures == [(1, stream)] * 3
    assert runs == [8, 8, 4, 4, 2, 2]
