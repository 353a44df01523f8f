"""Measured step costs."""

import pytest

from service.costs import CostMeter
from tests.cores import make_core, make_submit, make_toy


def test_decode_rows_and_prefill_tokens_are_told_apart() -> None:
    core, meter = make_core(pages=60, budget=40), CostMeter()
    toy = make_toy(core)

    def step(token_s: float, row_s: float) -> None:
        begun = core.begin(0.0)
        assert begun is not None
        counts = [len(row.tokens) for row in begun.batch.rows]
        rows = counts.count(1)
        meter.observe(begun, row_s * rows + token_s * (sum(counts) - rows))
        core.finish(begun, toy.step(begun.batch), 0.0)

    core.submit(make_submit(1, max_tokens=40))
    for _ in range(10):
        step(token_s=2.0, row_s=3.0)
    core.submit(make_submit(2, prompt=range(50, 70), max_tokens=40))
    for _ in range(10):
        step(token_s=2.0, row_s=3.0)
    assert meter.costs.row_s == pytest.approx(3.0)
    assert meter.costs.token_s == pytest.approx(2.0)


def test_averages_follow_what_changes() -> None:
    core, meter = make_core(pages=60), CostMeter()
    toy = make_toy(core)
    core.submit(make_submit(1, max_tokens=90))
    for seconds in [1.0] * 5 + [2.0] * 60:
        begun = core.begin(0.0)
        assert begun is not None
        meter.observe(begun, seconds)
        core.finish(begun, toy.step(begun.batch), 0.0)
    assert 1.9 < meter.costs.row_s <= 2.0
