"""A mixed step end to end: rows that decode beside a chunk of a prompt, and each of the two
alone. A step with prefill is no graph, so the host launches every kernel."""

import random
from collections.abc import Sequence

from bench.gpu.findings import Findings
from bench.gpu.made import made
from bench.gpu.place import Place
from bench.gpu.room import PAGE_SIZE, Room
from bench.gpu.shapes import SHAPES, free_for
from bench.gpu.timing import host_s
from models.batch import RequestId, Row, Sampling, StepBatch
from models.config import ModelConfig
from models.device_runner import DeviceRunner

DECODES = 32
CONTEXT = 1024
CHUNK = 512
ROUNDS = 20


def check(place: Place, findings: Findings) -> None:
    for name, config in SHAPES.items():
        if findings.out_of_time(name):
            return
        if free_for(findings, name, config):
            _shape(place, findings, name, config)
            place.clear()


def _shape(place: Place, findings: Findings, name: str, config: ModelConfig) -> None:
    each = -(-(CONTEXT + CHUNK) // PAGE_SIZE)
    room = Room((DECODES + 1) * each, 0, DECODES + 1, DECODES + CHUNK)
    model = made(place, config, "tested", room)
    eager = model.runner(place.recorder())
    graphed = model.runner(place.recorder(), DECODES)
    decodes = [_row(config, id, each, 1) for id in range(DECODES)]
    chunk = _row(config, DECODES, each, CHUNK)
    for title, runner, rows in (
        (f"{DECODES} decode rows, graph", graphed, decodes),
        (f"{DECODES} decode rows, eager", eager, decodes),
        (f"a chunk of {CHUNK}", eager, [chunk]),
        (f"{DECODES} decode rows and a chunk of {CHUNK}", eager, [*decodes, chunk]),
    ):
        _measure(place, findings, f"{name}, {title}", runner, rows)


def _measure(
    place: Place, findings: Findings, title: str, runner: DeviceRunner, rows: Sequence[Row]
) -> None:
    """The whole of a step, and how long the host takes to start it."""
    batch = StepBatch(rows)
    result = runner.step(batch)  # warm
    errors = [row.error for row in result.rows.values() if row.error is not None]
    findings.expect(not errors, f"{title}: {errors[:1]}")
    step_s = host_s(place, lambda: runner.step(batch), ROUNDS)
    start_s = host_s(place, lambda: runner.start(batch), ROUNDS)
    findings.figure(title, step_s * 1e3, "ms a step")
    findings.figure(f"{title}: starting", start_s * 1e3, "ms a step")


def _row(config: ModelConfig, id: int, pages: int, tokens: int) -> Row:
    """The last `tokens` of a request behind `CONTEXT` others."""
    draw = random.Random(id)
    known = [draw.randrange(config.vocab_size) for _ in range(CONTEXT + tokens)]
    table = range(1 + id * pages, 1 + (id + 1) * pages)
    return Row(RequestId(id), known[CONTEXT:], CONTEXT, table, True, Sampling(), known, [])
