"""Runs tasks in parallel processes."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Workers:
    """`jobs` processes until the block ends; 1 is this process alone."""

    def __init__(self, jobs: int) -> None:
        self._pool = ProcessPoolExecutor(jobs, get_context("spawn")) if jobs > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Tasks that have not begun never do."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def start(self, run: Callable[[T], R], task: T) -> Callable[[], R]:
        """One task; what comes back waits for its result, or runs it now if there is no other
        process."""
        if self._pool is None:
            return lambda: run(task)
        return self._pool.submit(run, task).result

    def each(self, run: Callable[[T], R], tasks: Iterable[T]) -> Iterator[tuple[T, R]]:
        """Tasks with their results, in the order in which they end. Raises what a task does."""
        if self._pool is None:
            yield from ((task, run(task)) for task in tasks)
            return
        pending = {self._pool.submit(run, task): task for task in tasks}
        for done in as_completed(pending):
            yield pending[done], done.result()
