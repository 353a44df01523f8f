"""What `auto` means for the size of a step and for how many are in flight."""

from dataclasses import dataclass

from service.settings import Engine

SMALL_GPU_BYTES = 40 * 2**30


@dataclass(frozen=True, slots=True)
class StepSizes:
    """`max_rows`, `max_step_tokens` and `steps_in_flight` of `service.settings`, as numbers."""

    max_rows: int
    max_step_tokens: int
    steps_in_flight: int


CPU = StepSizes(32, 512, 1)
GPU = StepSizes(256, 8192, 2)
SMALL_GPU = StepSizes(256, 4096, 2)


def step_sizes(engine: Engine, device: str, device_bytes: int | None = None) -> StepSizes:
    """Of an engine on `device` (`cpu`, `cuda` or `cuda:1`) with so much memory; None: unknown,
    which counts as little. What is named stays; the rest is made to fit it: a step always has
    more tokens than rows, and ranks take one step at a time."""
    usual = CPU if device == "cpu" else GPU
    if device != "cpu" and (device_bytes or 0) < SMALL_GPU_BYTES:
        usual = SMALL_GPU
    rows, tokens, steps = usual.max_rows, usual.max_step_tokens, usual.steps_in_flight
    if engine.max_rows != "auto":
        rows = engine.max_rows
        tokens = max(tokens, 2 * rows)
    if engine.max_step_tokens != "auto":
        tokens = engine.max_step_tokens
        rows = min(rows, tokens - 1)
    if engine.tensor_parallel > 1:
        steps = 1
    if engine.steps_in_flight != "auto":
        steps = engine.steps_in_flight
    return StepSizes(rows, tokens, steps)
