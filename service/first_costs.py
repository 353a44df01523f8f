"""What steps cost, measured before the first request: made-up steps in the scratch page."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from models.batch import RequestId, Row, Sampling, StepBatch
from service.costs import FEW, CostMeter

LIMIT_S = 0.3
NEEDED = 5
GREEDY = Sampling()
NEAR, USUAL, FAR = 16, 256, 2048  # tokens of the least chunk; before a decode row, a late chunk

Seconds = Callable[[StepBatch], float]
"""Runs a step; how long it took."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a step of a request may have."""

    max_rows: int
    max_tokens: int
    context_tokens: int
    page_size: int


def first_costs(seconds: Seconds, room: Room, limit_s: float = LIMIT_S) -> CostMeter:
    """A meter that knows the costs already. The first `NEEDED` probes are run in any case, the
    others while time is left. Of each the quickest run counts, because other work of the
    machine only adds; only a slow model has just one. Keys and values are read and written
    in page 0, whose content means nothing. Raises what `seconds` raises."""
    meter = CostMeter()
    steps = list(_probes(room))
    meter.observe(steps[0], seconds(steps[0]))  # memory is touched for the first time
    best_s: list[float] = []
    spent_s = 0.0
    for step in steps:
        if len(best_s) < NEEDED or spent_s < limit_s / 2:
            best_s.append(seconds(step))
            spent_s += best_s[-1]
    if spent_s < 4 * limit_s:  # unless the machine stood still once
        best_s = list(map(min, best_s, map(seconds, steps)))
    for _ in range(FEW // len(best_s) + 1):
        for step, took_s in zip(steps, best_s, strict=False):
            meter.observe(step, took_s)
    return meter


def _probes(room: Room) -> Iterator[StepBatch]:
    """Decode rows, a few that read much, a small chunk, one far on; then larger ones."""
    far = max(0, min(FAR, room.context_tokens - 4 * NEAR))
    chunks = sorted({min(n, room.max_tokens) for n in (4 * NEAR, 8 * NEAR, room.max_tokens)})
    yield _step(room, [(1, USUAL)])
    yield _step(room, [(1, USUAL)] * min(2 * NEAR, room.max_rows))
    yield _step(room, [(1, far)] * min(NEAR // 4, room.max_rows))
    yield _step(room, [(NEAR, 0)])
    yield _step(room, [(2 * NEAR, far)])
    for tokens in chunks:
        yield _step(room, [(tokens, 0)])


def _step(room: Room, parts: list[tuple[int, int]]) -> StepBatch:
    """A row for each (tokens, how many come before them)."""
    rows = []
    for index, (tokens, before) in enumerate(parts):
        end = min(before + min(tokens, room.max_tokens), room.context_tokens)
        known, start = [0] * end, min(before, end - 1)
        pages = [0] * -(-end // room.page_size)
        rows.append(
            Row(RequestId(index), known[start:], start, pages, tokens == 1, GREEDY, known, [])
        )
    return StepBatch(rows)
