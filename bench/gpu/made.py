"""Models with random weights, made on the device: exact, rounded, and as they are served."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from bench.gpu.place import Place
from bench.gpu.room import PAGE_SIZE, Room
from bench.gpu.steps import RowShape, step_meta
from memory.attention.interface import AttentionBackend, KVSpec
from models.config import ModelConfig
from models.device_runner import DeviceRunner
from models.graphs import Capture, DecodeGraphs
from models.layers import LayerReader
from models.linear import plain
from models.llama import Llama
from models.random_weights import SMOLLM2_135M, RandomWeights
from models.weights import TensorSource

Kind = Literal["exact", "reference", "tested"]
"""float32 on the reference backend; that backend in the served dtype; what is served. Random
weights are numbers of the served dtype, so they are the same for all three."""

SEED = 11
SMALL = Room(pages=63, host_pages=0, rows=64, step_tokens=512)


def small_shape() -> ModelConfig:
    """The default model's heads in a small model: what a CPU checks in seconds."""
    return replace(
        SMOLLM2_135M,
        vocab_size=512,
        hidden_size=128,
        intermediate_size=256,
        num_layers=2,
        context_tokens=1024,
    )


def random_tokens(config: ModelConfig, count: int, seed: int = 0) -> list[int]:
    """A prompt of noise."""
    draw = random.Random(seed)
    return [draw.randrange(config.vocab_size) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Made:
    """A model and the attention it runs on, whose pool is allocated."""

    config: ModelConfig
    model: Llama
    attention: AttentionBackend
    num_pages: int

    @torch.inference_mode()
    def logits(self, tokens: Sequence[int], chunk: int) -> Tensor:
        """float32 [tokens, vocab] behind each token, teacher-forced, so many at a time."""
        device = self.attention.spec.device
        table = random.Random(1).sample(range(1, self.num_pages), -(-len(tokens) // PAGE_SIZE))
        found = []
        for start in range(0, len(tokens), chunk):
            ids = torch.tensor(tokens[start : start + chunk], device=device)
            shape = RowShape(start + len(ids), len(ids))
            pages = table[: -(-shape.length // PAGE_SIZE)]
            self.attention.plan(step_meta([shape], [pages], PAGE_SIZE))
            positions = torch.arange(start, shape.length, device=device)
            every = torch.arange(len(ids), device=device)
            found.append(self.model.logits(self.model.hidden(ids, positions, every)))
        return torch.cat(found)

    def runner(self, capture: Capture, graph_rows: int = 0) -> DeviceRunner:
        """What the service runs on a GPU; with graphs of up to so many rows."""
        if not graph_rows:
            return DeviceRunner(self.model, self.attention)
        graphs = DecodeGraphs(self.model, self.attention, graph_rows)
        graphs.capture(capture)
        return DeviceRunner(self.model, self.attention, graphs)


def made(
    place: Place,
    config: ModelConfig,
    kind: Kind,
    room: Room = SMALL,
    source: TensorSource | None = None,
) -> Made:
    """A model of the same weights for every kind: random ones, where no `source` is given."""
    dtype = torch.float32 if kind == "exact" else place.dtype
    heads = (config.num_q_heads, config.num_kv_heads, config.head_dim)
    spec = KVSpec(config.num_layers, *heads, PAGE_SIZE, dtype, place.device)
    attention = _attention(place, spec, kind, room)
    attention.alloc_pool(room.pages + 1)
    if room.host_pages:
        attention.alloc_host(room.host_pages)
    source = source or RandomWeights(SEED, place.device, place.dtype)
    # As on a GPU everywhere: what is not torch's own, a pretended graph cannot record.
    decoder = LayerReader(config, source, dtype, plain).decoder()
    return Made(config, Llama(config, decoder, attention), attention, room.pages + 1)


def _attention(place: Place, spec: KVSpec, kind: Kind, room: Room) -> AttentionBackend:
    if kind != "tested":
        return place.reference(spec)
    longest = -(-room.context_tokens // spec.page_size)
    return place.attention(spec, room.rows, longest)
