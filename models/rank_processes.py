"""The processes of ranks 1, 2, ... as rank 0 holds them: started, heard while they load,
watched, ended."""

import multiprocessing
import os
import queue
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from models.errors import ModelError

EXIT_S = 2.0
START_HEED_S = 5.0
"""So long may whoever starts take to hear, by itself, that a rank is lost."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A rank's last words, one line, before it exits."""

    line: str


Counts = tuple[int, ...]
Heard = Counts | Failed
"""What a rank says: counts to agree on, or why it goes."""


class RankProcesses:
    """Ranks 1 .. `size` - 1, each running `main(rank, folder, pipe, *args)`. `folder` is
    theirs and rank 0's alone. They are spawned: threads do not survive a fork.

    A lost rank is told by `agree`, `depend` and `lost`; once `depend` was called, `on_lost`
    is too, with one line, on a thread of its own. They never outlive this process, however
    it ends: `main` begins with `exit_with_rank_0`.
    """

    def __init__(
        self,
        size: int,
        main: Callable[..., None],
        args: tuple[Any, ...],
        on_lost: Callable[[str], None],
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="walkway-ranks-"))
        self._on_lost = on_lost
        self._said: queue.Queue[Heard] = queue.Queue()
        self._lock = threading.Lock()
        self._line: str | None = None
        self._heed_s: float | None = None
        self._lost, self._closing = threading.Event(), threading.Event()
        self._ranks: dict[Connection, tuple[int, SpawnProcess]] = {}
        self._watcher = threading.Thread(target=self._watch, name="ranks", daemon=True)
        # A process that ends waits for its children, which wait for it; and one that is a
        # child itself does so before it comes to what `atexit` knows.
        self._at_end = Finalize(None, self.close, exitpriority=0)
        for rank in range(1, size):
            self._start(rank, main, args)
        self._watcher.start()

    def agree(self, counts: Counts) -> Counts:
        """The least of all ranks, which hear it. ModelError with a lost rank's line."""
        found = [counts]
        for _ in self._ranks:
            said = self._said.get()
            if isinstance(said, Failed):
                raise ModelError(said.line)
            found.append(said)
        least = tuple(map(min, zip(*found, strict=True)))
        for pipe in self._ranks:
            self._send(pipe, least)
        return least

    def depend(self, heed_s: float) -> None:
        """From now on this process may wait for a rank for ever: `on_lost` is called for a
        lost one where `close` was not within `heed_s`. ModelError with the line of one that
        is lost already."""
        with self._lock:
            self._heed_s = heed_s
            line = self._line
        if line is not None:
            raise ModelError(line)

    def lost(self, within_s: float) -> str | None:
        """The line of the first rank that was lost, waiting for it if need be."""
        self._lost.wait(within_s)
        return self._line

    def close(self) -> None:
        """End them all. They hold nothing that anybody would miss."""
        self._at_end.cancel()
        self._closing.set()
        for _, process in self._ranks.values():
            process.kill()
        if self._watcher.is_alive():
            self._watcher.join()  # of two that wait for one process, one waits in vain
        for _, process in self._ranks.values():
            process.join()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, rank: int, main: Callable[..., None], args: tuple[Any, ...]) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=main, args=(rank, self.folder, theirs, *args), name=f"walkway-rank-{rank}"
        )
        process.start()
        theirs.close()  # so that its end is seen as the end of the pipe
        self._ranks[ours] = rank, process

    def _send(self, pipe: Connection, counts: Counts) -> None:
        try:
            pipe.send(counts)
        except OSError:  # it is gone: the watcher says so
            return

    def _watch(self) -> None:
        while not self._closing.is_set():
            for pipe in wait(list(self._ranks)):
                assert isinstance(pipe, Connection)
                rank, process = self._ranks[pipe]
                try:
                    said: Heard = pipe.recv()
                except (EOFError, OSError):
                    process.join(EXIT_S)
                    said = Failed(_cause(process.exitcode))
                if isinstance(said, Failed):
                    self._lose(f"rank {rank}: {said.line}")
                    return
                self._said.put(said)

    def _lose(self, line: str) -> None:
        with self._lock:
            if self._closing.is_set():
                return
            self._line = line
            heed_s = self._heed_s
        self._said.put(Failed(line))
        self._lost.set()
        if heed_s is not None and not self._closing.wait(heed_s):
            shutil.rmtree(self.folder, ignore_errors=True)  # `on_lost` may not return
            self._on_lost(line)


def exit_with_rank_0(folder: Path) -> None:
    """Called by a rank first of all: ends its process, whatever it does, once rank 0's has
    ended, and clears up behind both."""

    def wait_for_its_end() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)  # the main thread may wait for a sum that never comes

    threading.Thread(target=wait_for_its_end, name="rank 0", daemon=True).start()


def _cause(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"ended by {signal.Signals(-exitcode).name}"
    return f"exited with code {exitcode}"
