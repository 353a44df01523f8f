"""Any order of events with two steps in flight, under every strategy."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from models.batch import RowResult, StepResult
from service.core import Step
from service.messages import Finish
from tests.cores import make_core
from tests.late import Airfield
from tests.strategies import EVERY
from tests.test_strategy_machine import ERRATIC, StrategyMachine, made

TWO = 2


class AheadMachine(StrategyMachine):
    """The machine of one step in flight with up to two of them: they begin, return and fail
    at any moment, in order. The runner computes a step only when it is landed."""

    @initialize(
        pages=st.integers(5, 12),
        host=st.sampled_from([0, 1, 3, 12]),
        rows=st.integers(1, 4),
        budget=st.integers(4, 9),
        watermark=st.integers(0, 2),
    )
    def start(self, **sizes: int) -> None:
        self.core = make_core(scheduler=made(self.variant), steps_in_flight=TWO, **sizes)
        self.field = Airfield(self.core)
        self.answers = self.field.answers

    @rule(data=st.data(), reason=st.sampled_from([Finish.CANCELLED, Finish.STOP]))
    def end(self, data: st.DataObject, reason: Finish) -> None:
        """Also of one that is unknown, and twice."""
        self._cut(data.draw(st.integers(0, len(self.submits))), reason)
        residency = self.core.residency
        for flight in self.field.flights:
            for request in flight.step.touched():
                held = residency.pages.holds(request.id) or residency.host.holds(request.id)
                assert held, "released under a step in flight"

    @rule(count=st.integers(1, 4))
    def steps(self, count: int) -> None:
        """As the loop does it."""
        for _ in range(count):
            self._make_room()
            if self._begin() is None:
                self.finish()

    @precondition(lambda self: len(self.field.flights) < TWO)
    @rule()
    def begin(self) -> None:
        """Also again and again while a step is in flight that has to return first."""
        self._make_room()
        self._begin()

    @precondition(lambda self: self.field.flights)
    @rule()
    def finish(self) -> None:
        if self.field.flights:
            self.field.land(self.now_s)
            self._check_at_rest()

    @precondition(lambda self: self.field.flights and self.field.flights[0].batch.rows)
    @rule(data=st.data())
    def row_fails_alone(self, data: st.DataObject) -> None:
        flight = self.field.flights.popleft()
        row = data.draw(st.sampled_from(flight.batch.rows))
        result = dict(flight.landing().rows)
        self.field.late.spoil(row)
        failed = StepResult(result | {row.request: RowResult(error="NaN in the logits")})
        self.core.finish(flight.step, failed, self.now_s)
        self.answers.take(self.core)
        self._check_at_rest()

    @precondition(lambda self: self.field.flights)
    @rule()
    def step_fails(self) -> None:
        before = self.core.residency.pages.version
        self.field.fail(self.now_s)
        assert self.core.residency.pages.version == before, "published what failed"
        self._check_at_rest()

    def teardown(self) -> None:
        if self.core is None:
            return
        while self.field.flights:
            self.finish()
        super().teardown()
        told = sum(map(len, self.answers.tokens.values()))
        assert self.answers.stats.output_tokens == told

    def _begin(self) -> Step | None:
        self.now_s += 0.25
        step = self.field.begin(self.now_s)
        if not self.field.flights:
            assert not self.core.has_work, "nothing is computed though somebody is here"
        return step

    def _make_room(self) -> None:
        if len(self.field.flights) == TWO:
            self.finish()

    def _check_at_rest(self) -> None:
        if not self.field.flights:
            super()._check_at_rest()

    def _run_out(self) -> None:
        self.field.run(self.now_s)


@pytest.mark.parametrize("variant", [*EVERY, ERRATIC[0]])
def test_no_order_of_events_breaks_a_strategy_that_plans_ahead(variant: str) -> None:
    run_state_machine_as_test(
        lambda: AheadMachine(variant),
        settings=settings(max_examples=10, stateful_step_count=30, deadline=None),
    )
