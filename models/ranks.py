"""A model whose layers are split over processes: rank 0 is the caller, which plans, samples
and serves; the others follow it, pass by pass.

Every rank keeps its own heads' keys and values, in pools of as many pages, under the same page
ids. So a page table, a copy or a step means the same everywhere, and rank 0 only says which.
"""

import gc
import os
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import torch

from memory.attention.interface import AttentionBackend
from models.available_cores import threads_for
from models.devices import choose_device
from models.errors import ModelError
from models.load import Loaded, LoadOptions, load
from models.rank_group import Group
from models.rank_leader import Leader, LeadingAttention, LeadingModel
from models.rank_messages import Copies, Pass
from models.rank_processes import (
    START_HEED_S,
    Counts,
    Failed,
    Heard,
    RankProcesses,
    exit_with_rank_0,
)
from models.shard import Model, Shard
from models.source import model_path

FAILED_WAIT_S = 5.0
NO_WORDS_S = 0.5


class Ranks:
    """A loaded model over all its processes. `loaded.runner` must not be used after `close`."""

    def __init__(self, loaded: Loaded, processes: RankProcesses, group: Group) -> None:
        self.loaded = loaded
        self._processes, self._group = processes, group

    def close(self) -> None:
        """End the other ranks. Happens by itself when this process ends."""
        self._processes.close()
        self._group.leave()


def load_ranks(options: LoadOptions, size: int, on_lost: Callable[[str], None]) -> Ranks:
    """Load on `size` ranks at once, this process being rank 0. Bytes and threads in the options
    are for all of them together. ModelError with one line of whichever rank cannot. `on_lost`
    is told, on another thread, that a rank is gone and this call, or a step of the runner,
    may never return: this process has to end."""
    options = _of_one(options, size)
    processes = RankProcesses(size, follower_main, (size, options), on_lost)
    options = _at(options, 0)
    group = Group(processes.folder, 0, size, options.device)
    try:
        loaded = load(options, _LeaderSeat(Shard(0, size, group), group, processes))
        processes.agree(())
        processes.depend(heed_s=0.0)
    except Exception as error:
        # A rank that fails makes the others fail in sums with it: its own line says why.
        lost = None if isinstance(error, ModelError) else processes.lost(FAILED_WAIT_S)
        processes.close()
        group.leave()
        if lost is None:
            raise
        raise ModelError(lost) from error
    return Ranks(loaded, processes, group)


def follower_main(
    rank: int, folder: Path, pipe: "Connection[Heard, Counts]", size: int, options: LoadOptions
) -> None:
    """Entry of the process of a rank above 0. It ends with rank 0's, or by being killed."""
    exit_with_rank_0(folder)
    options = _at(options, rank)
    group = Group(folder, rank, size, options.device)
    seat = _FollowerSeat(Shard(rank, size, group), group, pipe)
    try:
        if options.device != "cpu":
            torch.cuda.set_device(options.device)
        load(options, seat)
        seat.agree()
        gc.collect()
        gc.freeze()  # what is loaded stays: searching it for garbage would hold up all ranks
        follow(seat.model, seat.attention, group)
    except Exception as error:
        if not isinstance(error, ModelError):
            time.sleep(NO_WORDS_S)  # the end of rank 0 looks like this too, and ends this
            traceback.print_exc()
        with suppress(OSError):  # rank 0 is gone
            pipe.send(Failed(_one_line(error)))
        os._exit(1)


def follow(model: Model, attention: AttentionBackend, group: Group) -> NoReturn:
    """Do what rank 0 tells, for ever: the same copies in the same order, and the same passes,
    whose sums end with the tokens that are wanted there. Whatever this raises is fatal."""
    device = attention.spec.device
    with torch.inference_mode():
        while True:
            match group.hear():
                case Copies(out=True, pairs=pairs):
                    attention.copy_out(pairs)
                case Copies(pairs=pairs):
                    attention.copy_in(pairs)
                case Pass() as told:
                    attention.fence()
                    attention.plan(told.meta)
                    model.hidden(*(x.to(device) for x in told.inputs))


class _LeaderSeat:
    def __init__(self, shard: Shard, group: Group, processes: RankProcesses) -> None:
        self.shard, self._group, self._processes = shard, group, processes

    def meet(self) -> None:
        self._processes.agree(())
        self._processes.depend(START_HEED_S)
        self._group.join()

    def agree(self, *counts: int) -> Counts:
        return self._processes.agree(counts)

    def seated(
        self, model: Model, attention: AttentionBackend
    ) -> tuple[Model, AttentionBackend]:
        leader = Leader(self._group)
        leading = LeadingAttention(attention, leader)
        return LeadingModel(model, leading, leader), leading


class _FollowerSeat:
    model: Model
    attention: AttentionBackend

    def __init__(self, shard: Shard, group: Group, pipe: "Connection[Heard, Counts]") -> None:
        self.shard, self._group, self._pipe = shard, group, pipe

    def meet(self) -> None:
        self.agree()
        self._group.join()

    def agree(self, *counts: int) -> Counts:
        self._pipe.send(counts)
        return self._pipe.recv()

    def seated(
        self, model: Model, attention: AttentionBackend
    ) -> tuple[Model, AttentionBackend]:
        self.model, self.attention = model, attention
        return model, attention


def _of_one(options: LoadOptions, size: int) -> LoadOptions:
    """The options of one rank of `size`, but for its device. ModelError without GPUs enough."""
    device = choose_device(options.device)
    if device != "cpu" and torch.cuda.device_count() < size:
        raise ModelError(
            f"engine.tensor_parallel = {size} needs as many GPUs; torch finds "
            f"{torch.cuda.device_count()}"
        )
    return replace(
        options,
        source=str(model_path(options.source)),  # fetched once, not by every rank
        device="cpu" if device == "cpu" else "cuda",
        threads=max(1, threads_for(options.threads) // size),
        pool_bytes=options.pool_bytes and options.pool_bytes // size,
        host_bytes=options.host_bytes // size,
    )


def _at(options: LoadOptions, rank: int) -> LoadOptions:
    if options.device == "cpu":
        return options
    return replace(options, device=f"cuda:{rank}")


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return lines[0] if isinstance(error, ModelError) else f"{type(error).__name__}: {lines[0]}"
