"""Page tables as arrays that grow: walking lists takes longer than a step's other inputs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.batch import RequestId, Row

Table = NDArray[np.int32]


class _Growing:
    """One table. A list of pages grows at its end and goes as a whole (`memory.pages`), so what
    was read of it once stays."""

    def __init__(self, pages: Sequence[int]) -> None:
        self.pages = pages  # held, so that no other list is taken for it
        self._filled = 0
        self._array: Table = np.zeros(0, np.int32)

    def array(self) -> Table:
        count = len(self.pages)
        if count > len(self._array):
            grown = np.zeros(2 * count, np.int32)
            grown[: self._filled] = self._array[: self._filled]
            self._array = grown
        if count > self._filled:
            self._array[self._filled : count] = self.pages[self._filled :]
            self._filled = count
        return self._array[:count]


class PageTables:
    """Those of the last step's requests. One that was not in it, or has another list of pages
    since (it was preempted), is read anew."""

    def __init__(self) -> None:
        self._last: dict[RequestId, _Growing] = {}

    def of(self, rows: Sequence[Row]) -> list[Table]:
        """Of each row of a step."""
        found = [self._growing(row) for row in rows]
        self._last = {row.request: table for row, table in zip(rows, found, strict=True)}
        return [table.array() for table in found]

    def _growing(self, row: Row) -> _Growing:
        last = self._last.get(row.request)
        return last if last is not None and last.pages is row.pages else _Growing(row.pages)
