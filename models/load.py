"""Brings a model up: from the settings' words to a runner and what is to be known of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from memory.attention.choose import BackendUnavailable, choose
from memory.attention.interface import AttentionBackend, KVSpec
from models.available_memory import available_bytes
from models.batch import Runner
from models.config import ModelConfig, from_hf, limit_context
from models.errors import ModelError
from models.gguf_config import from_gguf
from models.gguf_file import read_gguf
from models.gguf_weights import GgufWeights
from models.invariance import make_invariant
from models.layers import LayerReader
from models.linear import cpu_kernel, fastest_dtype
from models.llama import Llama
from models.runner import TorchRunner
from models.source import model_path
from models.weights import SafetensorsFolder, TensorSource

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What to load and how. `num_pages` overrides `pool_bytes`; `threads` 0 leaves torch's
    choice."""

    source: str
    dtype: Literal["auto", "bf16", "fp32"] = "auto"
    attention: Literal["auto", "reference", "cpu"] = "auto"
    page_size: int = 16
    num_pages: int | None = None
    pool_bytes: int = 2**30
    host_bytes: int = 0
    threads: int = 0
    max_context_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is ready. `num_pages` counts the scratch page; `batch_why` says why the
    answers' bits may depend on the batch, where `batch_invariant` is false."""

    runner: Runner
    family: str
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


def load(options: LoadOptions) -> Loaded:
    """Read the weights, check the products, allocate the pools. ModelError, in one line, for
    whatever cannot be served."""
    if options.threads:
        torch.set_num_threads(options.threads)
    name = options.dtype if options.dtype != "auto" else fastest_dtype()
    dtype = DTYPES[name]
    config, source = _opened(model_path(options.source))
    config = limit_context(config, options.max_context_tokens)
    decoder = LayerReader(config, source, dtype, cpu_kernel(dtype)[0]).decoder()
    attention, attention_why = _attention(config, options, dtype)
    num_pages, host_pages = _allocate(attention, options)
    fault = make_invariant(decoder.linears())
    if attention.name != "cpu":
        fault = f"attention backend {attention.name} sums in an order that depends on the row"
    return Loaded(
        runner=TorchRunner(Llama(config, decoder, attention), attention),
        family=config.family,
        dtype=name,
        vocab_size=config.vocab_size,
        context_tokens=config.context_tokens,
        num_pages=num_pages,
        host_pages=host_pages,
        page_size=options.page_size,
        attention=attention.name,
        attention_why=attention_why,
        batch_invariant=fault is None,
        batch_why=fault or "",
        # A file may name ids that the model does not have (-1 for none): nothing to stop at.
        eos_ids=tuple(id for id in config.eos_ids if 0 <= id < config.vocab_size),
    )


def _opened(path: Path) -> tuple[ModelConfig, TensorSource]:
    if path.is_dir():
        return from_hf(path), SafetensorsFolder(path)
    file = read_gguf(path)
    config = from_gguf(file)
    return config, GgufWeights(file, config)


def _attention(
    config: ModelConfig, options: LoadOptions, dtype: torch.dtype
) -> tuple[AttentionBackend, str]:
    spec = KVSpec(
        num_layers=config.num_layers,
        num_q_heads=config.num_q_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        page_size=options.page_size,
        dtype=dtype,
    )
    try:
        return choose(options.attention, spec, (config.hidden_size, config.intermediate_size))
    except BackendUnavailable as error:
        raise ModelError(str(error)) from error


def _allocate(attention: AttentionBackend, options: LoadOptions) -> tuple[int, int]:
    """Device and host pages, allocated, if there is memory for both."""
    page_bytes = attention.spec.page_bytes
    num_pages = options.num_pages or options.pool_bytes // page_bytes
    host_pages = options.host_bytes // page_bytes
    if num_pages < 2:
        raise ModelError(
            f"a pool of {options.pool_bytes} bytes holds {num_pages} pages of {page_bytes} "
            "bytes; at least 2 are needed"
        )
    wanted, available = (num_pages + host_pages) * page_bytes, available_bytes()
    if wanted > available:
        raise ModelError(
            f"the pages need {wanted} bytes ({num_pages} in the pool, {host_pages} on the "
            f"host), and {available} bytes of memory are available beside the weights"
        )
    attention.alloc_pool(num_pages)
    if host_pages:
        attention.alloc_host(host_pages)
    return num_pages, host_pages
