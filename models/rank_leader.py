"""Rank 0's side of a step: what its runner asks of model and attention, the others are told
first.

A row is judged, and a step planned, before anything is told, so what those raise ends the
step's rows and no more. Whatever is raised after telling leaves the ranks out of step with
each other, and is fatal.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from torch import Tensor

from memory.attention.interface import AttentionBackend, Rotation, StepMeta
from memory.kernels.interface import LayerOps
from models.errors import DeviceLost
from models.rank_messages import Copies, Message, Pass
from models.shard import Model


class Voice(Protocol):
    """Reaches all other ranks. See `models.rank_group.Group`."""

    def tell(self, message: Message) -> None: ...


class Leader:
    """Tells the others, and lets nothing more happen once they are out of step."""

    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self._broken = ""

    @contextmanager
    def together(self, message: Message) -> Iterator[None]:
        """All ranks do what `message` says; this one inside. DeviceLost if it cannot."""
        if self._broken:
            raise DeviceLost(self._broken)
        try:
            self._voice.tell(message)
            yield
        except Exception as error:
            self._broken = f"the ranks are out of step: {type(error).__name__}: {error}"
            raise DeviceLost(self._broken) from error


class LeadingAttention:
    """The `AttentionBackend` of rank 0's runner. It has no graphs: what is replayed would
    not be told."""

    capture_sizes: Sequence[int] = ()

    def __init__(self, inner: AttentionBackend, leader: Leader) -> None:
        self._inner, self._leader = inner, leader
        self.name, self.spec = inner.name, inner.spec
        self.meta: StepMeta | None = None

    @property
    def ops(self) -> LayerOps:
        return self._inner.ops

    def alloc_pool(self, num_pages: int) -> Tensor:
        return self._inner.alloc_pool(num_pages)

    def alloc_host(self, num_pages: int) -> Tensor:
        return self._inner.alloc_host(num_pages)

    def plan(self, meta: StepMeta) -> None:
        self._inner.plan(meta)
        self.meta = meta

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        self._inner.write(layer, k, v)

    def rope_write(
        self, layer: int, qkv: Tensor, positions: Tensor, rotation: Rotation
    ) -> Tensor:
        return self._inner.rope_write(layer, qkv, positions, rotation)

    def run(self, layer: int, q: Tensor, out: Tensor) -> None:
        self._inner.run(layer, q, out)

    def copy_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        with self._leader.together(Copies(True, tuple(pairs))):
            self._inner.copy_out(pairs)

    def copy_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        with self._leader.together(Copies(False, tuple(pairs))):
            self._inner.copy_in(pairs)

    def take_copy_s(self) -> float:
        return self._inner.take_copy_s()

    def fence(self) -> None:
        self._inner.fence()


class LeadingModel:
    """The model of rank 0's runner. Logits are rank 0's alone."""

    def __init__(self, inner: Model, attention: LeadingAttention, leader: Leader) -> None:
        self._inner, self._attention, self._leader = inner, attention, leader
        self.vocab_size = inner.vocab_size

    def hidden(self, tokens: Tensor, positions: Tensor, wanted: Tensor) -> Tensor:
        meta = self._attention.meta
        assert meta is not None, "no step was planned"
        with self._leader.together(Pass(meta, tokens, positions, wanted)):
            return self._inner.hidden(tokens, positions, wanted)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._inner.logits(hidden)
