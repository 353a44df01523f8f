"""What ranks run in tests, by functions that a spawned process can import without torch."""

import multiprocessing
import os
import signal
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from models.rank_processes import Failed, RankProcesses, exit_with_rank_0

PATIENCE = timedelta(seconds=4)


def agreeing(rank: int, folder: Path, pipe: Connection, *counts: int) -> None:
    """Says the counts less its rank, writes down what it hears, and waits to be ended."""
    exit_with_rank_0(folder)
    pipe.send(tuple(count - rank for count in counts))
    (folder / str(rank)).write_text(str(pipe.recv()))
    pipe.send(())
    time.sleep(3600)


def failing(rank: int, folder: Path, pipe: Connection) -> None:
    """The last rank cannot load, the others wait for what never comes."""
    exit_with_rank_0(folder)
    if rank == 2:
        pipe.send(Failed("there is no model here"))
        os._exit(1)
    pipe.send(())
    pipe.recv()


def killed(rank: int, folder: Path, pipe: Connection) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def half_joined(rank: int, folder: Path, pipe: Connection, *load: Any) -> None:
    """Ends when the first of two groups is there."""
    import torch.distributed

    from models.ranks import follower_main

    torch.distributed.new_group = lambda **_: os._exit(3)
    follower_main(rank, folder, pipe, *load)


def impatient(rank: int, folder: Path, pipe: Connection, *load: Any) -> None:
    """Waits for the others for `PATIENCE` at most, but for what rank 0 tells."""
    from models import rank_group
    from models.ranks import follower_main

    rank_group.LATE = PATIENCE
    follower_main(rank, folder, pipe, *load)


def failing_alone(rank: int, folder: Path, pipe: Connection, *load: Any) -> None:
    """Joins the others, and fails where they compute together."""
    from models import load as loading
    from models.errors import ModelError
    from models.ranks import follower_main

    def cpu_pages(*_: object) -> NoReturn:
        raise ModelError("no room for a step")

    loading.cpu_pages = cpu_pages
    follower_main(rank, folder, pipe, *load)


def rank_0(notes: Path) -> None:
    """Starts a rank, writes down its process, and ends."""
    processes = RankProcesses(2, agreeing, (5,), print)
    processes.agree((5,))
    processes.agree(())
    processes.depend(heed_s=0.0)
    [rank] = multiprocessing.active_children()
    notes.write_text(f"{rank.pid} {processes.folder}")
