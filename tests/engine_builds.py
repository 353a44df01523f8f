"""Engines to start in tests, by functions that a spawned process can import: the toy model
on a real core, behind a runner that obeys the first token of a prompt."""

import os
import signal
import time

from models.batch import Runner, StepBatch, StepResult
from models.errors import ModelError
from service.engine_process import Built
from service.messages import Ready
from service.settings import Settings
from service.step_sizes import step_sizes
from tests.cores import make_core, make_toy

SLEEP, NAP, RAISE, KILL, NO_MEMORY = 201, 202, 203, 204, 205
STEP_S = 0.002
NAP_S = 0.8

READY = Ready(
    generation=0,
    model="toy",
    family="toy",
    dtype="int64",
    vocab_size=257,
    context_tokens=65536,
    num_pages=4096,
    page_size=4,
    attention="none",
    attention_why="the toy has none",
    batch_invariant=True,
    scheduler="fcfs",
    eos_ids=[256],
)


class TouchyRunner:
    """Runs `inner`, but a row whose prompt starts with a marker makes it misbehave."""

    def __init__(self, inner: Runner) -> None:
        self._inner = inner

    def step(self, batch: StepBatch) -> StepResult:
        markers = {row.prompt[0] for row in batch.rows}
        if KILL in markers:
            os.kill(os.getpid(), signal.SIGKILL)
        if SLEEP in markers:
            time.sleep(3600)
        if NAP in markers:
            time.sleep(NAP_S)
        if NO_MEMORY in markers:
            raise MemoryError
        if RAISE in markers:
            raise RuntimeError("asked to raise")
        time.sleep(STEP_S)
        return self._inner.step(batch)


def touchy(settings: Settings) -> Built:
    rows = step_sizes(settings.engine, "cpu").max_rows
    core = make_core(pages=4095, page_size=4, rows=rows, audit=None)
    return Built(core, TouchyRunner(make_toy(core)), READY)


def without_model(settings: Settings) -> Built:
    raise ModelError(f"there is no model at {settings.model.source}\nand more for developers")


def without_memory(settings: Settings) -> Built:
    raise MemoryError


def with_a_bug(settings: Settings) -> Built:
    return {}["missing"]


def killed_while_loading(settings: Settings) -> Built:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError
