"""How ranks on one machine add up and hear rank 0: torch.distributed, NCCL between GPUs and
gloo on the CPU."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from models.rank_messages import HEADER, Message, packed, payload_size, unpacked

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"

LATE = timedelta(seconds=120)
"""A rank that is so late, for the start or for a sum, hangs."""

IDLE = timedelta(days=3650)
"""How long nothing may be asked of the engine: ranks wait for rank 0 in a broadcast."""


class Group:
    """A `Collective` for `Shard`, and rank 0's voice. Nothing works before `join`, which
    returns when all ranks have called it; they find each other over a file in `folder`."""

    def __init__(self, folder: Path, rank: int, size: int, device: str) -> None:
        self._folder, self._rank, self._size, self._device = folder, rank, size, device

    def join(self) -> None:
        # Ranks share a machine; by default both libraries listen where others can reach them.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", LOOPBACK)
        on_gpu = self._device != "cpu"
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            init_method=f"file://{self._folder}/rendezvous",
            rank=self._rank,
            world_size=self._size,
            timeout=LATE,
            device_id=torch.device(self._device) if on_gpu else None,
        )
        self._voice = dist.new_group(backend="gloo", timeout=LATE)

    def leave(self) -> None:
        """Also without having joined. On GPUs the end of the process does it: NCCL would wait
        for ranks that are gone."""
        if self._device == "cpu" and dist.is_initialized():
            dist.destroy_process_group()

    def all_reduce(self, x: Tensor) -> Tensor:
        dist.all_reduce(x)
        return x

    def tell(self, message: Message) -> None:
        """Rank 0 alone: what the others are to do next."""
        for numbers in packed(message):
            dist.broadcast(numbers, 0, self._voice)

    def hear(self) -> Message:
        """The others: wait for what rank 0 tells. RuntimeError when it is gone."""
        header = torch.empty(HEADER, dtype=torch.int64)
        while_idle = dist.BroadcastOptions()
        while_idle.timeout = IDLE
        self._voice.broadcast([header], while_idle).wait()
        payload = torch.empty(payload_size(header), dtype=torch.int64)
        dist.broadcast(payload, 0, self._voice)
        return unpacked(header, payload)
