"""Brings a model up: from the settings' words to a runner and what is to be known of it."""

from dataclasses import dataclass, replace
from functools import partial

import torch

from memory.attention.choose import (
    BackendUnavailable,
    MostRows,
    Requested,
    choose,
    refuse_kernels_of_others,
)
from memory.attention.interface import AttentionBackend, KVSpec
from models.available_cores import threads_for
from models.available_memory import available_bytes, free_device_bytes
from models.batch import AheadRunner
from models.checkpoint import open_checkpoint, tensors_of
from models.config import ModelConfig, limit_context
from models.device_start import Demands, Machine, room_on_device, start_on_device
from models.device_weights import OnDevice
from models.devices import DTYPES, DtypeName, choose_device, choose_dtype
from models.errors import ModelError
from models.fits import refuse_too_large
from models.graphs import CudaCapture
from models.invariance import make_invariant
from models.layers import Decoder, LayerReader
from models.linear import cpu_kernel, plain
from models.llama import Llama
from models.pools import PoolWish, cpu_pages
from models.runner import TorchRunner
from models.shard import LONE, Seat, refuse_uneven
from models.trial import StepSize
from models.weights import TensorSource

SUMMED = "the ranks' terms of a sum are added in an order that depends on the row's place"
ON_GPU = "a GPU's kernels sum in an order that depends on the batch"
PRODUCTS_ON_GPU = "a GPU's matrix products sum in an order that depends on a step's tokens"
"""Where attention itself is batch-invariant."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What to load and how. `num_pages` overrides `pool_bytes`, and both what is left of
    them by default: see `PoolWish`; for `threads` 0 see `threads_for`. `max_rows` and
    `max_step_tokens` are what a step holds at most; `batch_invariant` is for attention."""

    source: str
    dtype: DtypeName = "auto"
    attention: Requested = "auto"
    page_size: int = 16
    num_pages: int | None = None
    pool_bytes: int | None = None
    host_bytes: int = 0
    threads: int = 0
    max_context_tokens: int | None = None
    device: str = "auto"
    device_fraction: float = 0.9
    max_rows: int = 32
    max_step_tokens: int = 512
    cuda_graphs: bool = True
    batch_invariant: bool = False

    @property
    def most(self) -> StepSize:
        """The largest step."""
        return StepSize(self.max_rows, self.max_step_tokens)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is ready. `num_pages` counts the scratch page, `page_bytes` are on all
    ranks; `batch_why` says why the answers' bits may depend on the batch, where
    `batch_invariant` is false. `tensors` were read, `unused` were not; `rope` and `head` are
    for people."""

    runner: AheadRunner
    family: str
    device: str
    dtype: str
    vocab_size: int
    context_tokens: int
    num_pages: int
    host_pages: int
    page_size: int
    attention: str
    attention_why: str
    batch_invariant: bool
    batch_why: str
    eos_ids: tuple[int, ...]
    temperature: float
    page_bytes: int
    tensors: int
    rope: str
    window: int | None
    head: str
    unused: tuple[str, ...] = ()


def load(options: LoadOptions, seat: Seat = LONE) -> Loaded:
    """Read the weights, check the products, allocate the pools, as one rank where the seat is
    among others'. ModelError, in one line, for whatever cannot be served."""
    # Imported where files are: weights from elsewhere do without the packages.
    from models.source import model_path

    choose_dtype(options.dtype, choose_device(options.device))  # first: it fails in no time
    found = open_checkpoint(model_path(options.source))
    loaded = bring_up(found.config, found.source, options, seat)
    return replace(loaded, unused=found.unused)


def bring_up(
    config: ModelConfig, source: TensorSource, options: LoadOptions, seat: Seat = LONE
) -> Loaded:
    """The same for weights from anywhere; `options.source` is not looked at."""
    torch.set_num_threads(threads_for(options.threads))  # of this thread, which computes
    config = limit_context(config, options.max_context_tokens)
    refuse_uneven(config, seat.shard.size)
    device = choose_device(options.device)
    loading = _Loading(config, options, seat, device, choose_dtype(options.dtype, device))
    with room_on_device(options.most):
        return loading.loaded(source)


@dataclass(frozen=True, slots=True)
class _Up:
    """`fault`: why bits may depend on the batch, if so."""

    runner: AheadRunner
    num_pages: int
    host_pages: int
    fault: str | None


@dataclass(frozen=True, slots=True)
class _Loading:
    config: ModelConfig
    options: LoadOptions
    seat: Seat
    device: str
    dtype: str

    def loaded(self, source: TensorSource) -> Loaded:
        if torch.device(self.device).index is not None:
            torch.cuda.set_device(self.device)  # what names no device means the current one
        self._refuse_too_large()
        self.seat.agree()  # none reads before all have looked at the memory they share
        decoder = self._decoder(source)
        self.seat.meet()
        attention, why = self._attention()
        model = Llama(self.config, decoder, attention, self.seat.shard)
        if self.device == "cpu":
            up = self._on_cpu(model, decoder, attention)
        else:
            up = self._on_gpu(model, attention)
        return self._described(up, attention, why)

    def _refuse_too_large(self) -> None:
        ranks, itemsize = self.seat.shard.size, DTYPES[self.dtype].itemsize
        if self.device == "cpu":
            there, where = available_bytes() // ranks, "memory"
        else:
            there, where = free_device_bytes(self.device), f"{self.device}'s memory"
        refuse_too_large(self.config, ranks, self.dtype, itemsize, there, where)

    def _decoder(self, source: TensorSource) -> Decoder:
        dtype = DTYPES[self.dtype]
        kernel = cpu_kernel(dtype)[0] if self.device == "cpu" else plain
        if self.device != "cpu":
            source = OnDevice(source, self.device)
        return LayerReader(self.config, source, dtype, kernel, self.seat.shard).decoder()

    def _attention(self) -> tuple[AttentionBackend, str]:
        config, options, shard = self.config, self.options, self.seat.shard
        spec = KVSpec(
            num_layers=config.num_layers,
            num_q_heads=shard.of(config.num_q_heads),
            num_kv_heads=shard.of(config.num_kv_heads),
            head_dim=config.head_dim,
            page_size=options.page_size,
            dtype=DTYPES[self.dtype],
            device=self.device,
        )
        widths = (config.hidden_size, shard.of(config.intermediate_size))
        most = MostRows(options.max_rows, -(-config.context_tokens // options.page_size))
        try:
            chosen = choose(options.attention, spec, widths, most, options.batch_invariant)
            refuse_kernels_of_others(chosen[0])
            return chosen
        except BackendUnavailable as error:
            raise ModelError(str(error)) from error

    def _on_cpu(self, model: Llama, decoder: Decoder, attention: AttentionBackend) -> _Up:
        seat, ranks = self.seat, self.seat.shard.size
        page_bytes = attention.spec.page_bytes
        pages = cpu_pages(self._wish(), page_bytes, available_bytes(), ranks)
        num_pages, host_pages = seat.agree(*pages)
        attention.alloc_pool(num_pages)
        if host_pages:
            attention.alloc_host(host_pages)
        fault = make_invariant(decoder.linears()) if ranks == 1 else SUMMED
        if ranks == 1 and attention.name != "cpu":
            name = attention.name
            fault = f"attention backend {name} sums in an order that depends on the row"
        runner = TorchRunner(*seat.seated(model, attention))
        return _Up(runner, num_pages, host_pages, fault)

    def _on_gpu(self, model: Llama, attention: AttentionBackend) -> _Up:
        torch.cuda.empty_cache()  # what reading took, which would count as held
        capture = CudaCapture(self.device) if self.options.cuda_graphs else None
        machine = Machine(partial(free_device_bytes, self.device), capture)
        demands = Demands(self._wish(), self.options.most, self.config.context_tokens)
        running = start_on_device(model, attention, demands, machine, self.seat)
        fault = PRODUCTS_ON_GPU if self.options.batch_invariant else ON_GPU
        return _Up(running.runner, running.num_pages, running.host_pages, fault)

    def _wish(self) -> PoolWish:
        o = self.options
        return PoolWish(o.num_pages, o.pool_bytes, o.device_fraction, o.host_bytes)

    def _described(self, up: _Up, attention: AttentionBackend, why: str) -> Loaded:
        config = self.config
        return Loaded(
            runner=up.runner,
            family=config.family,
            device=self.device,
            dtype=self.dtype,
            vocab_size=config.vocab_size,
            context_tokens=config.context_tokens,
            num_pages=up.num_pages,
            host_pages=up.host_pages,
            page_size=self.options.page_size,
            attention=attention.name,
            attention_why=why,
            batch_invariant=up.fault is None,
            batch_why=up.fault or "",
            # A file may name ids that the model does not have (-1 for none): nothing to
            # stop at.
            eos_ids=tuple(id for id in config.eos_ids if 0 <= id < config.vocab_size),
            temperature=config.temperature,
            tensors=len(tensors_of(config)),
            rope=str(config.rope),
            window=config.window,
            head="the embedding" if config.tied else "stored",
            page_bytes=attention.spec.page_bytes * self.seat.shard.size,
        )
