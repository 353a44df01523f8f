"""Looks at what `walkway serve` would make of a model on this machine: which device, dtype
and attention backend, by the code that the loader itself asks; nothing is fetched or loaded.
"""

from dataclasses import replace
from functools import partial

from cli.gpu_probes import gpu_kernels
from cli.machine import Choice, Fault, Invariance, Model, Serving
from cli.probes import attempt
from memory.attention.choose import choose
from memory.attention.flashinfer_workspace import workspace_bytes
from memory.attention.interface import KVSpec
from models.checkpoint import open_checkpoint
from models.config import ModelConfig, limit_context
from models.devices import DTYPES, choose_device, choose_dtype
from models.fits import layer_weights, weight_bytes
from models.invariance import make_invariant
from models.layers import LayerReader
from models.linear import cpu_kernel
from models.load import ON_GPU, PRODUCTS_ON_GPU, SUMMED
from models.pools import CPU_POOL_BYTES
from models.random_weights import SMOLLM2_135M, RandomWeights
from models.shard import refuse_uneven
from models.source import cached_path
from models.toy import refuse_ranks
from service.settings import Settings
from service.step_sizes import step_sizes

LOGIT_BYTES = 4
MULTIPROCESSORS = 132
"""Of a large GPU."""

MEASURED_WEIGHTS = 100_000_000
"""Invariance is measured where a layer's products and the head have no more weights
together: seconds on two cores."""


def model(settings: Settings) -> Model:
    """The configured model. ModelError where it cannot be served."""
    if settings.model.source == "toy":
        refuse_ranks(settings.engine.tensor_parallel)
        return Model(None)
    path = cached_path(settings.model.source)
    config = SMOLLM2_135M if path is None else open_checkpoint(path).config
    config = limit_context(config, settings.model.max_context_tokens)
    refuse_uneven(config, settings.engine.tensor_parallel)
    return Model(config, here=path is not None)


def serving(config: ModelConfig, settings: Settings) -> Serving:
    """What the loader would make of a model."""
    found = attempt(partial(choice, config, settings))
    if isinstance(found, Fault):
        return Serving(found)
    spec = spec_of(config, settings, found.device, found.dtype)
    compiled = found.attention == "flashinfer"
    return Serving(
        choice=found,
        gpu_kernels=attempt(partial(gpu_kernels, spec)) if compiled else None,
        invariance=attempt(partial(invariance, config, settings, found)),
        host_bytes=host_bytes(config, settings, spec),
        device_bytes=device_bytes(config, settings, spec),
        context_bytes=context_bytes(config, settings, spec),
    )


def choice(config: ModelConfig, settings: Settings) -> Choice:
    """Device, dtype and backend as the loader takes them. ModelError or BackendUnavailable
    where it would refuse."""
    device = choose_device(settings.model.device)
    dtype = choose_dtype(settings.model.dtype, device)
    spec = spec_of(config, settings, device, dtype)
    widths = (config.hidden_size, config.intermediate_size // settings.engine.tensor_parallel)
    invariant = settings.attention.batch_invariant
    backend, why = choose(settings.attention.backend, spec, widths, batch_invariant=invariant)
    return Choice(device, dtype, backend.name, why)


def spec_of(config: ModelConfig, settings: Settings, device: str, dtype: str) -> KVSpec:
    """The keys and values of one rank."""
    ranks = settings.engine.tensor_parallel
    return KVSpec(
        num_layers=config.num_layers,
        num_q_heads=config.num_q_heads // ranks,
        num_kv_heads=config.num_kv_heads // ranks,
        head_dim=config.head_dim,
        page_size=settings.memory.page_size,
        dtype=DTYPES[dtype],
        device=device,
    )


def invariance(config: ModelConfig, settings: Settings, found: Choice) -> Invariance:
    """Measured with random weights of one layer and the head, as the loader measures it."""
    if settings.engine.tensor_parallel > 1:
        return Invariance(False, SUMMED)
    if found.device != "cpu":
        why = PRODUCTS_ON_GPU if settings.attention.batch_invariant else ON_GPU
        return Invariance(None, f"not measured: {why}")
    if found.attention != "cpu":
        return Invariance(False, f"{found.attention} attention sums by the row's place")
    if _weights(config) > MEASURED_WEIGHTS:
        return Invariance(None, "a model this large is measured when it was loaded")
    dtype = DTYPES[found.dtype]
    one_layer, weights = replace(config, num_layers=1), RandomWeights(0, "cpu", dtype)
    decoder = LayerReader(one_layer, weights, dtype, cpu_kernel(dtype)[0]).decoder()
    fault = make_invariant(decoder.linears())
    return Invariance(fault is None, fault or "")


def host_bytes(config: ModelConfig, settings: Settings, spec: KVSpec) -> int:
    """What all ranks take of the machine's memory: weights, pool and host store, as far as
    the settings tell."""
    memory, ranks = settings.memory, settings.engine.tensor_parallel
    if spec.device != "cpu":
        return memory.host_bytes
    pool = memory.pool_bytes or CPU_POOL_BYTES
    if memory.num_pages is not None:
        pool = memory.num_pages * spec.page_bytes * ranks
    weights = ranks * weight_bytes(config, ranks, spec.dtype.itemsize)
    return weights + pool + memory.host_bytes


def device_bytes(config: ModelConfig, settings: Settings, spec: KVSpec) -> int:
    """What each rank takes of its GPU at least: weights, the logits of a step's rows and its
    states, what the attention works in, and the pool that the settings name or else its two
    pages."""
    if spec.device == "cpu":
        return 0
    memory, engine = settings.memory, settings.engine
    sizes = step_sizes(engine, spec.device)
    weights = weight_bytes(config, engine.tensor_parallel, spec.dtype.itemsize)
    pages = memory.num_pages or max(2, (memory.pool_bytes or 0) // spec.page_bytes)
    logits = sizes.max_rows * config.vocab_size * LOGIT_BYTES
    states = sizes.max_step_tokens * config.hidden_size * spec.dtype.itemsize * 4
    working = workspace_bytes(spec, sizes.max_rows, MULTIPROCESSORS)
    return weights + pages * spec.page_bytes + logits + states + working


def context_bytes(config: ModelConfig, settings: Settings, spec: KVSpec) -> int:
    """What one request as long as the context takes of a pool on a GPU whose size the
    settings leave open; 0 elsewhere."""
    memory = settings.memory
    if spec.device == "cpu" or memory.num_pages or memory.pool_bytes:
        return 0
    return -(-config.context_tokens // spec.page_size) * spec.page_bytes


def _weights(c: ModelConfig) -> int:
    """Of one layer's products and the head."""
    return layer_weights(c) + c.vocab_size * c.hidden_size
