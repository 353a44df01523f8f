"""Builds an engine from settings: what runs in the engine process."""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import msgspec
import structlog

from memory.host import HostPages
from memory.pages import PageAllocator
from models.batch import Runner, StepBatch
from models.pools import CPU_POOL_BYTES
from models.toy import CONTEXT, EOS, VOCABULARY, ToyRunner, refuse_ranks
from schedulers.registry import BUILT_IN
from service.core import Core
from service.costs import CostMeter
from service.engine_process import Built
from service.first_costs import Room, first_costs
from service.invariants import check_core
from service.messages import Ready
from service.options import shown_options
from service.planner import OwnFlag, Planner
from service.residency import Residency
from service.settings import Memory, Settings
from service.step import StepLimits
from service.step_sizes import StepSizes, step_sizes
from service.strategy import make_scheduler

if TYPE_CHECKING:
    from models.load import Loaded, LoadOptions

    BringUp = Callable[[LoadOptions], Loaded]

TOY_SLOT_BYTES = 8

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Model:
    """A model in memory: what computes, its host pages, and what is told of it."""

    runner: Runner
    host_pages: int
    ready: Ready


def build(settings: Settings, bring_up: "BringUp | None" = None) -> Built:
    """Load the model, make the core. `bring_up` gets a decoder from elsewhere than its files
    (random weights, say). Raises ModelError, UnknownScheduler, BadOptions or
    MemoryError, each with one line for people."""
    planner = _planner(settings)  # first: it fails in no time
    if settings.model.source == "toy":
        sizes = step_sizes(settings.engine, "cpu")
        model = _toy(settings)
    else:
        sizes = _sizes(settings)
        load = partial(
            _loaded,
            ranks=settings.engine.tensor_parallel,
            on_lost=partial(_end_at_once, planner),
        )
        model = _decoder(settings, sizes, bring_up or load)
        log.info("step_sizes", **asdict(sizes))
    residency = Residency(
        PageAllocator(model.ready.num_pages, settings.memory.prefix_cache),
        HostPages(model.host_pages),
        settings.memory.page_size,
    )
    limits = _limits(settings, sizes)
    audit = check_core if settings.engine.check else None
    core = Core(residency, planner, limits, audit, steps_in_flight=sizes.steps_in_flight)
    ready = msgspec.structs.replace(
        model.ready,
        max_rows=limits.max_rows,
        max_step_tokens=limits.max_tokens,
        host_pages=model.host_pages,
    )
    return Built(core, model.runner, ready, _measured(model, limits))


def _planner(settings: Settings) -> Planner:
    chosen = settings.scheduler
    scheduler = make_scheduler(chosen.name, chosen.options)
    planner = Planner(
        chosen.name,
        scheduler,
        log.error,
        time.perf_counter,
        strict=lambda name: settings.engine.check and name in BUILT_IN,
    )
    planner.options = shown_options(scheduler, chosen.options)
    return planner


def _limits(settings: Settings, sizes: StepSizes) -> StepLimits:
    gap_ms = settings.engine.target_gap_ms
    return StepLimits(
        sizes.max_rows,
        sizes.max_step_tokens,
        settings.memory.watermark_pages,
        None if gap_ms is None else gap_ms / 1e3,
    )


def _measured(model: _Model, limits: StepLimits) -> CostMeter:
    """The costs of steps; none are known of the toy, whose steps take no time."""
    ready = model.ready
    if ready.family == "toy":
        return CostMeter()
    room = Room(limits.max_rows, limits.max_tokens, ready.context_tokens, ready.page_size)

    def seconds(batch: StepBatch) -> float:
        began_s = time.perf_counter()
        model.runner.step(batch)
        return time.perf_counter() - began_s

    began_s = time.perf_counter()
    meter = first_costs(seconds, room)
    log.info(
        "costs_measured",
        step_ms=round(meter.costs.step_s * 1e3, 3),
        row_ms=round(meter.costs.row_s * 1e3, 3),
        token_ms=round(meter.costs.token_s * 1e3, 4),
        pair_us=round(meter.costs.pair_s * 1e6, 4),
        context_us=round(meter.costs.context_s * 1e6, 4),
        took_s=round(time.perf_counter() - began_s, 2),
    )
    return meter


def _sizes(settings: Settings) -> StepSizes:
    """Of the device that `model.device` means here. Raises ModelError where there is none."""
    from models.devices import choose_device, memory_bytes

    device = choose_device(settings.model.device)
    return step_sizes(settings.engine, device, memory_bytes(device))


def _decoder(settings: Settings, sizes: StepSizes, bring_up: "BringUp") -> _Model:
    # Imported here: torch costs seconds, which the toy is not to pay.
    from models.load import LoadOptions

    loaded = bring_up(
        LoadOptions(
            source=settings.model.source,
            dtype=settings.model.dtype,
            attention=settings.attention.backend,
            page_size=settings.memory.page_size,
            num_pages=settings.memory.num_pages,
            pool_bytes=settings.memory.pool_bytes,
            host_bytes=settings.memory.host_bytes,
            threads=settings.engine.threads,
            max_context_tokens=settings.model.max_context_tokens,
            device=settings.model.device,
            device_fraction=settings.memory.device_fraction,
            max_rows=sizes.max_rows,
            max_step_tokens=sizes.max_step_tokens,
            cuda_graphs=settings.engine.cuda_graphs,
            batch_invariant=settings.attention.batch_invariant,
        )
    )
    _say_threads()
    if not loaded.batch_invariant:
        log.warning("answers may depend on the batch", why=loaded.batch_why)
    ready = Ready(
        generation=0,
        model=settings.model.source,
        family=loaded.family,
        dtype=loaded.dtype,
        vocab_size=loaded.vocab_size,
        context_tokens=loaded.context_tokens,
        num_pages=loaded.num_pages,
        page_size=loaded.page_size,
        attention=loaded.attention,
        attention_why=loaded.attention_why,
        batch_invariant=loaded.batch_invariant,
        scheduler=settings.scheduler.name,
        eos_ids=list(loaded.eos_ids),
        temperature=loaded.temperature,
        page_bytes=loaded.page_bytes,
        tensors=loaded.tensors,
        unused_tensors=list(loaded.unused),
        head=loaded.head,
        rope=loaded.rope,
        window=loaded.window,
    )
    return _Model(loaded.runner, loaded.host_pages, ready)


def _say_threads() -> None:
    import torch

    from models.available_cores import available_cores

    cores = available_cores()
    threads = torch.get_num_threads()
    log.info("cpu_threads", threads=threads, cores=cores.affinity, quota=cores.quota)


def _loaded(options: "LoadOptions", ranks: int, on_lost: Callable[[str], None]) -> "Loaded":
    from models.load import load
    from models.ranks import load_ranks

    return load(options) if ranks == 1 else load_ranks(options, ranks, on_lost).loaded


def _end_at_once(planner: Planner, why: str) -> NoReturn:
    """A rank is gone: the step that waits for it never returns. A strategy that plans just
    now, on another thread, is no suspect, nor one that begins to before the end."""
    log.error("rank_lost", why=why)
    suspect, planner.flag = planner.flag, OwnFlag()
    suspect.value = False
    os._exit(1)


def _toy(settings: Settings) -> _Model:
    refuse_ranks(settings.engine.tensor_parallel)
    memory = settings.memory
    page_bytes = memory.page_size * TOY_SLOT_BYTES
    pool_bytes = memory.pool_bytes or CPU_POOL_BYTES
    num_pages = memory.num_pages or min(pool_bytes // page_bytes, _most(memory))
    host_pages = min(memory.host_bytes // page_bytes, num_pages)
    ready = Ready(
        generation=0,
        model="toy",
        family="toy",
        dtype="int64",
        vocab_size=VOCABULARY,
        context_tokens=min(settings.model.max_context_tokens or CONTEXT, CONTEXT),
        num_pages=num_pages,
        page_size=memory.page_size,
        attention="none",
        attention_why="the toy model reads its pages without",
        batch_invariant=True,
        scheduler=settings.scheduler.name,
        eos_ids=[EOS],
        page_bytes=page_bytes,
    )
    return _Model(ToyRunner(num_pages, memory.page_size, host_pages), host_pages, ready)


def _most(memory: Memory) -> int:
    """Pages for 16 requests of the toy's whole context: more is never of use in trying."""
    return 16 * CONTEXT // memory.page_size
