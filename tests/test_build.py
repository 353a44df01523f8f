"""What the settings make of an engine."""

from schedulers.interface import StepCosts
from service.build import build
from tests.cores import make_submit
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
