"""Where the check runs: on a GPU, or on a CPU over emulated kernels."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from memory.attention.interface import AttentionBackend, KVSpec
from memory.attention.reference import ReferenceAttention
from models.graphs import Capture, CudaCapture

CYCLES_PER_S = 2e9


class NoGpu(Exception):
    """There is no GPU to check; one line for people."""


class MissingPackage(Exception):
    """Nothing can be checked without it; one line for people."""


@dataclass(frozen=True, slots=True)
class Place:
    """A device, and what the project runs on it. `quick`: fewer and smaller cases; `model`:
    where the default model's file is, if not in the cache."""

    device: str
    device_name: str
    on_gpu: bool
    quick: bool = False
    model: Path | None = None
    dtype: torch.dtype = torch.bfloat16
    tape: Capture | None = None

    def attention(
        self,
        spec: KVSpec,
        max_rows: int = 64,
        max_pages_per_row: int | None = None,
        batch_invariant: bool = False,
    ) -> AttentionBackend:
        """The backend under test; graphs of up to `max_rows`."""
        # Imported here: it imports FlashInfer, which may not be there.
        from memory.attention.flashinfer import FlashInferAttention

        return FlashInferAttention(
            spec,
            max_rows=max_rows,
            max_pages_per_row=max_pages_per_row,
            batch_invariant=batch_invariant,
        )

    def recorder(self) -> Capture:
        """For one set of graphs, which share memory."""
        return self.tape or CudaCapture(self.device)

    def reference(self, spec: KVSpec) -> ReferenceAttention:
        """The oracle, on the same device."""
        return ReferenceAttention(spec)

    def spec(
        self,
        num_q_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int = 16,
        num_layers: int = 2,
    ) -> KVSpec:
        """A shape in the place's dtype on its device."""
        return KVSpec(
            num_layers, num_q_heads, num_kv_heads, head_dim, page_size, self.dtype, self.device
        )

    def generator(self, seed: int) -> torch.Generator:
        """Random numbers on the device."""
        return torch.Generator(self.device).manual_seed(seed)

    def sync(self) -> None:
        """Wait for the device."""
        if self.on_gpu:
            torch.cuda.synchronize()

    def hold(self, seconds: float) -> None:
        """Give the current stream nothing to do for about so long, so that whatever follows
        in it is late. Nothing where the host computes."""
        if self.on_gpu:
            torch.cuda._sleep(int(seconds * CYCLES_PER_S))  # type: ignore[no-untyped-call]

    def device_error(self) -> str:
        """Why the device cannot be used any more, if so."""
        try:
            self.sync()
        except RuntimeError as error:
            return str(error).splitlines()[0]
        return ""

    def clear(self) -> None:
        """Give the memory of what was dropped back to the device."""
        if self.on_gpu and not self.device_error():
            gc.collect()
            torch.cuda.empty_cache()


@contextmanager
def gpu_place(quick: bool, model: Path | None) -> Iterator[Place]:
    """The first GPU. Raises NoGpu."""
    if not torch.cuda.is_available():
        raise NoGpu("torch finds no GPU; --cpu runs the correctness half without one")
    torch.set_float32_matmul_precision("highest")  # the oracle is to have all of float32
    yield Place("cuda", torch.cuda.get_device_name(), on_gpu=True, quick=quick, model=model)


@contextmanager
def cpu_place(quick: bool, model: Path | None) -> Iterator[Place]:
    """This machine's CPU, FlashInfer's compiled modules replaced by torch."""
    # Imported here: it imports FlashInfer, which may not be there.
    try:
        from bench.flashinfer_emulation import emulated
    except ModuleNotFoundError as error:
        raise MissingPackage(f"--cpu needs the package {error.name}") from error
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the work is in small pieces, and others may use the machine
    try:
        with emulated() as emulation:
            name = "CPU, kernels emulated"
            yield Place("cpu", name, False, quick, model, tape=emulation.capture)
    finally:
        torch.set_num_threads(threads)
