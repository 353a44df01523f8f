"""Results that are kept, a JSON line each, so that a study can go on where it ended."""

from pathlib import Path

import msgspec

from bench.study.cells import Cell, Ground
from bench.study.outcome import Outcome


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A result: of a cell its outcome, of a ground its capacity. `sources` is a digest of the
    code that it was computed by."""

    ground: Ground
    sources: str
    cell: Cell | None = None
    outcome: Outcome | None = None
    capacity: float | None = None


Key = tuple[Ground | Cell, str]


class Store:
    """The kept results, by what was run and the digest of its code. A line that is not whole,
    because the study ended while it was written, is run again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[Key, Line] = {}
        if path.exists():
            self._read(path.read_bytes())

    def _read(self, content: bytes) -> None:
        lines = content.split(b"\n")
        for text in lines[:-1]:
            line = msgspec.json.decode(text, type=Line)
            self._found[line.cell or line.ground, line.sources] = line
        if lines[-1]:
            self._path.write_bytes(b"".join(line + b"\n" for line in lines[:-1]))

    def capacity(self, ground: Ground, sources: str) -> float | None:
        """None when it is not kept."""
        line = self._found.get((ground, sources))
        return None if line is None else line.capacity

    def outcome(self, cell: Cell, sources: str) -> Outcome | None:
        """None when it is not kept."""
        line = self._found.get((cell, sources))
        return None if line is None else line.outcome

    def add(self, line: Line) -> None:
        """Keep a result."""
        self._found[line.cell or line.ground, line.sources] = line
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
