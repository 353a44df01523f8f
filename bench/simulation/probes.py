"""Steps made up to be timed: decode rows and prefill chunks of many sizes, and copies."""

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench.simulation.costs import Work, work_of
from models.batch import RequestId, Row, Runner, Sampling, StepBatch

GREEDY = Sampling()
DECODES = (
    (1, 16),
    (1, 1024),
    (2, 64),
    (4, 256),
    (8, 64),
    (16, 512),
    (32, 128),
    (64, 256),
    (256, 128),
)
CHUNKS = (
    (8, 0),
    (16, 0),
    (32, 0),
    (64, 0),
    (64, 1024),
    (128, 0),
    (256, 0),
    (256, 1024),
    (512, 0),
    (512, 2048),
    (2048, 0),
)
MIXED = ((8, 256, 64), (24, 256, 256))
COPIES = (16, 128)


@dataclass(frozen=True, slots=True)
class Room:
    """What steps may have: tokens and rows a step, pages of the pool without the scratch
    page, host pages, positions of a request, token ids."""

    max_tokens: int
    max_rows: int
    pages: int
    host_pages: int
    page_size: int
    context_tokens: int
    vocab_size: int


@dataclass(frozen=True, slots=True)
class Timing:
    """A step's work and how long it took."""

    work: Work
    seconds: float


class Bench:
    """Makes rows with pages of their own. Raises ValueError for a step that has no room."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._draw = random.Random(0)

    def batch(self, parts: Sequence[tuple[int, int]]) -> StepBatch:
        """A row for each (tokens, start)."""
        room, used = self._room, 1  # page 0 is scratch
        rows = []
        for index, (tokens, start) in enumerate(parts):
            pages = -(-(start + tokens) // room.page_size)
            rows.append(self._row(index + 1, tokens, start, range(used, used + pages)))
            used += pages
        most = max(tokens + start for tokens, start in parts)
        tokens = sum(tokens for tokens, _ in parts)
        if used - 1 > room.pages or most > room.context_tokens:
            raise ValueError("the pool or the context is too small")
        if tokens > room.max_tokens or len(rows) > room.max_rows:
            raise ValueError("the limits of a step are too small")
        return StepBatch(rows)

    def _row(self, request: int, tokens: int, start: int, pages: range) -> Row:
        known = [self._draw.randrange(self._room.vocab_size) for _ in range(start + tokens)]
        prompt = known[:-1] if tokens == 1 and start else known
        return Row(
            request=RequestId(request),
            tokens=known[start:],
            start=start,
            pages=list(pages),
            samples=True,
            sampling=GREEDY,
            prompt=prompt,
            output=known[len(prompt) :],
        )


def probes(room: Room) -> Iterator[StepBatch]:
    """The steps that there is room for, smaller ones first within a kind."""
    bench = Bench(room)
    decodes = [[(1, context)] * rows for rows, context in DECODES]
    chunks = [[chunk] for chunk in CHUNKS]
    mixed = [[(1, context)] * rows + [(tokens, 0)] for rows, context, tokens in MIXED]
    for parts in (*decodes, *chunks, *mixed):
        try:
            yield bench.batch(parts)
        except ValueError:
            continue
    for pages in COPIES:
        if pages <= min(room.pages, room.host_pages):
            pairs = [(page + 1, page) for page in range(pages)]
            yield StepBatch([], swap_out=pairs)
            yield StepBatch([], swap_in=[(host, page) for page, host in pairs])


def fill(runner: Runner, room: Room, batches: Sequence[StepBatch]) -> None:
    """Write every slot that the steps will read: memory that was never touched reads too
    fast, and a model may refuse to."""
    bench = Bench(room)
    most = max(max(row.pages, default=0) for batch in batches for row in batch.rows)
    step = min(room.max_tokens // room.page_size, room.context_tokens // room.page_size)
    for first in range(1, most + 1, max(1, step)):
        pages = range(first, min(first + max(1, step), most + 1))
        (row,) = bench.batch([(min(len(pages) * room.page_size, room.max_tokens), 0)]).rows
        row.pages = list(pages)
        runner.step(StepBatch([row]))


def measure(
    runner: Runner,
    room: Room,
    repeats: int,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> list[Timing]:
    """Time each probe `repeats` times, in turns, so that a slow moment of the machine hits
    all alike; the medians. Raises ValueError when there is room for no step."""
    steps = list(probes(room))
    if not any(batch.rows for batch in steps):
        raise ValueError("the pool or the limits are too small for any step")
    fill(runner, room, steps)
    for batch in steps:
        runner.step(batch)
    times: list[list[float]] = [[] for _ in steps]
    for turn in range(repeats):
        for index, batch in enumerate(steps):
            begun_s = time.perf_counter()
            runner.step(batch)
            times[index].append(time.perf_counter() - begun_s)
            progress(turn * len(steps) + index + 1, repeats * len(steps))
    return [
        Timing(work_of(batch), statistics.median(found))
        for batch, found in zip(steps, times, strict=True)
    ]
