"""What the settings make of an engine."""

from pathlib import Path

from schedulers.interface import StepCosts
from service.build import build
from tests.cores import make_submit
from tests.tiny_models import saved, tiny_model
from tests.wire import make_settings

PROMPT = range(1, 101)


def first_step_tokens(costs: StepCosts, **engine: object) -> int:
    core = build(make_settings(engine=engine)).core
    core.costs = costs
    core.submit(make_submit(1, PROMPT))
    step = core.begin(0.0)
    assert step is not None
    return sum(len(row.tokens) for row in step.batch.rows)


def test_a_step_takes_no_more_tokens_than_fit_the_target_gap() -> None:
    costs = StepCosts(token_s=0.0015, row_s=0.002, step_s=0.01)
    assert first_step_tokens(costs) == len(PROMPT)
    assert first_step_tokens(costs, target_gap_ms=50) == 26  # 40 ms at 1.5 ms each


def test_before_anything_is_measured_the_target_gap_bounds_nothing() -> None:
    assert first_step_tokens(StepCosts(), target_gap_ms=50) == len(PROMPT)


def test_what_steps_cost_is_known_before_the_first_request(tmp_path: Path) -> None:
    folder = saved(tiny_model("llama"), tmp_path)
    built = build(make_settings(model={"source": str(folder)}, memory={"num_pages": 40}))
    assert built.meter.costs.step_s > 0
    assert built.core.take_events()[1].steps == 0
