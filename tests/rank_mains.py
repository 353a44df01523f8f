"""What ranks run in tests, by functions that a spawned process can import without torch."""

import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

from models.rank_processes import Failed, RankProcesses, exit_with_rank_0


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


def rank_0(notes: Path) -> None:
    """Starts a rank, writes down its process, and ends."""
    processes = RankProcesses(2, agreeing, (5,), print)
    processes.agree((5,))
    processes.agree(())
    processes.serve()
    [rank] = multiprocessing.active_children()
    notes.write_text(f"{rank.pid} {processes.folder}")
