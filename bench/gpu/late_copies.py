"""Copies of pages that begin late, so that whatever does not wait for them is seen to be
early."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from unittest.mock import patch

import torch
from torch import Tensor

from bench.gpu.place import Place
from memory.attention import flashinfer
from memory.attention.side_copies import CudaMark, Mark, Streams, streams_for


@dataclass(frozen=True, slots=True)
class LateStreams:
    """`Streams` of which the one for copies is held up before each call."""

    streams: Streams
    place: Place
    late_s: float

    def mark_compute(self) -> Mark:
        return self.streams.mark_compute()

    def mark_side(self) -> Mark:
        return self.streams.mark_side()

    def copy(self, parts: Iterable[tuple[Tensor, Tensor]]) -> None:
        mark = self.streams.mark_side()
        with torch.cuda.stream(mark.side) if isinstance(mark, CudaMark) else nullcontext():
            self.place.hold(self.late_s)
        self.streams.copy(parts)


@contextmanager
def late_copies(place: Place, late_s: float) -> Iterator[None]:
    """For the host pages that FlashInfer's backends get in it."""

    def late(device: str) -> Streams:
        return LateStreams(streams_for(device), place, late_s)

    with patch.object(flashinfer, "streams_for", late):
        yield
