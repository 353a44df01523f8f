"""Tiny decoders on the device runner, and requests that drive a runner without an engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from memory.attention.interface import AttentionBackend, KVSpec
from memory.attention.reference import ReferenceAttention
from models.batch import (
    IN_FLIGHT,
    AheadRunner,
    Landing,
    RequestId,
    Row,
    RowResult,
    Sampling,
    StepBatch,
)
from models.config import ModelConfig
from models.device_runner import DeviceRunner
from models.graphs import DecodeGraphs, Work
from models.hf_config import from_hf
from models.layers import LayerReader
from models.linear import plain
from models.llama import Llama
from models.runner import TorchRunner
from models.weights import SafetensorsFolder, TensorSource

PAGES, PAGE_SIZE = 64, 4


class PaddedReference(ReferenceAttention):
    """Takes steps that are padded for a graph."""

    capture_sizes = (1, 2, 4, 8)


class Rerun:
    """A `Capture` on a CPU: does the work again at each replay, and then spoils all that it
    made, as the next graph that is replayed over the same memory may."""

    def __init__(self) -> None:
        self.replays = 0

    def __call__(self, work: Work) -> Work:
        def replay() -> None:
            self.replays += 1
            with _Made() as made:
                work()
            for tensor in made.tensors:
                tensor.fill_(torch.nan if tensor.is_floating_point() else 1 << 30)

        replay()
        self.replays = 0
        return replay


class _Made(TorchDispatchMode):
    """Collects the tensors with memory of their own that operations return."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[Tensor] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        kept = {x.untyped_storage().data_ptr() for x in _tensors((args, kwargs))}
        self.tensors += [
            x
            for x in _tensors(out)
            if x.untyped_storage().data_ptr() not in kept and not x._is_view()
        ]
        return out


def _tensors(values: object) -> list[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, list | tuple):
        return [tensor for value in values for tensor in _tensors(value)]
    return []


def spec_of(config: ModelConfig, dtype: torch.dtype = torch.float32) -> KVSpec:
    return KVSpec(
        config.num_layers,
        config.num_q_heads,
        config.num_kv_heads,
        config.head_dim,
        PAGE_SIZE,
        dtype,
    )


@dataclass
class Tiny:
    """Weights of which any number of runners can be made, each with pages of its own."""

    config: ModelConfig
    source: TensorSource
    dtype: torch.dtype = torch.float32

    @classmethod
    def of(cls, folder: Path) -> "Tiny":
        return cls(from_hf(folder), SafetensorsFolder(folder))

    def model(self, attention: AttentionBackend) -> Llama:
        reader = LayerReader(self.config, self.source, self.dtype, plain)
        return Llama(self.config, reader.decoder(), attention)

    def attention(
        self, kind: Callable[[KVSpec], AttentionBackend] = PaddedReference
    ) -> AttentionBackend:
        attention = kind(spec_of(self.config, self.dtype))
        attention.alloc_pool(PAGES)
        attention.alloc_host(PAGES)
        return attention

    def on_host(self) -> TorchRunner:
        attention = self.attention()
        return TorchRunner(self.model(attention), attention)

    def on_device(self, capture: Rerun | None = None) -> DeviceRunner:
        attention = self.attention()
        model = self.model(attention)
        if capture is None:
            return DeviceRunner(model, attention)
        graphs = DecodeGraphs(model, attention, 8)
        graphs.capture(capture)
        return DeviceRunner(model, attention, graphs)


@dataclass
class Request:
    """A request's life without an engine: chunks of its prompt, then token by token. Rows
    may be made before the results of earlier ones are known."""

    id: int
    prompt: list[int]
    pages: list[int]
    sampling: Sampling = field(default_factory=Sampling)
    chunk: int = 1000
    output: list[int] = field(default_factory=list)
    results: list[RowResult] = field(default_factory=list)
    computed: int = 0
    flying: int = 0

    def row(self) -> Row:
        output = [*self.output, *[IN_FLIGHT] * self.flying]
        known = [*self.prompt, *output]
        tokens = known[self.computed :][: self.chunk]
        start, self.computed = self.computed, self.computed + len(tokens)
        samples = self.computed == len(known)
        self.flying += samples
        id = RequestId(self.id)
        return Row(id, tokens, start, self.pages, samples, self.sampling, self.prompt, output)

    @property
    def failed(self) -> bool:
        return any(result.error for result in self.results)

    def took(self, row: Row, result: RowResult) -> None:
        self.flying -= row.samples
        self.output += result.tokens
        self.results.append(result)


def run(runner: AheadRunner, requests: Sequence[Request], steps: int, ahead: int = 1) -> None:
    """So many steps, `ahead` of them in flight at once. A request that failed has no more
    rows in steps that start after that was seen."""
    started: list[tuple[list[tuple[Request, Row]], Landing]] = []

    def land() -> None:
        pairs, landing = started.pop(0)
        results = landing().rows
        for request, row in pairs:
            request.took(row, results[row.request])

    for _ in range(steps):
        pairs = [(request, request.row()) for request in requests if not request.failed]
        started.append((pairs, runner.start(StepBatch([row for _, row in pairs]))))
        if len(started) == ahead:
            land()
    while started:
        land()
