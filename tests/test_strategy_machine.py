"""Any order of events, under every strategy, over pools so small that all of it happens."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from models.batch import Row, RowResult, Sampling, StepBatch, StepResult
from schedulers.interface import Scheduler, StepCosts
from service.core import Step
from service.messages import Finish, Limits, Submit
from tests.cores import EOS, Answers, make_core, make_submit, make_toy, solo
from tests.erratic import Erratic, ErraticOptions
from tests.strategies import EVERY, strategy

SHARED = [0, 1, 1, 0, 0, 0]
PROMPTS = st.one_of(
    st.lists(st.integers(0, 1), min_size=1, max_size=7),
    st.builds(lambda n, tail: SHARED[:n] + tail, st.integers(1, 6), st.just([1])),
)
SAMPLINGS = st.sampled_from(
    [
        Sampling(),
        Sampling(temperature=1.0, seed=5),
        Sampling(stop_ids=(EOS, ord("e"), ord("t"), ord("a")), min_tokens=2),
        Sampling(prompt_logprobs=0),
    ]
)
LIMITS = st.sampled_from([(), (), (), ("end_by_s",), ("expire_by_s",), ("admit_by_s",)])
SOON = st.sampled_from([None, None, -1.0, 1.0, 6.0, 40.0])
COSTS = st.sampled_from(
    [
        StepCosts(),
        StepCosts(0.1, 0.1, 0.01),
        StepCosts(0.01, 0.1, 10.0),
        StepCosts(1.0, 1.0, 1.0),
    ]
)
ERRATIC = [f"erratic {seed}" for seed in range(5)]


class StrategyMachine(RuleBasedStateMachine):
    """A pool of 5 to 12 pages of two tokens, a host store, steps that fail, rows that fail
    alone, ends at any moment, a clock that jumps, strategies that change.

    Every change is followed by `check_core`, and a strategy that breaks a rule raises. Every
    answer that ran to its end equals the request's solo run, every other is a prefix of it.
    """

    def __init__(self, variant: str) -> None:
        super().__init__()
        self.variant = variant
        self.answers = Answers()
        self.submits: dict[int, Submit] = {}
        self.cut: set[int] = set()
        self.step: Step | None = None
        self.now_s = 0.0
        self.core = None

    @initialize(
        pages=st.integers(5, 12),
        host=st.sampled_from([0, 1, 3, 12]),
        rows=st.integers(1, 4),
        budget=st.integers(4, 9),
        watermark=st.integers(0, 2),
    )
    def start(self, **sizes: int) -> None:
        self.core = make_core(scheduler=made(self.variant), **sizes)
        self.toy = make_toy(self.core)

    @rule(
        prompt=PROMPTS,
        max_tokens=st.integers(0, 6),
        sampling=SAMPLINGS,
        limited=LIMITS,
        priority=st.sampled_from([0, 4, 4, 15]),
        of=st.sampled_from([("a", ""), ("a", "salt"), ("b", "")]),
        deadlines=st.tuples(SOON, SOON),
        copies=st.integers(1, 3),
    )
    def submit(
        self,
        prompt: list[int],
        max_tokens: int,
        sampling: Sampling,
        limited: tuple[str, ...],
        priority: int,
        of: tuple[str, str],
        deadlines: tuple[float | None, float | None],
        copies: int,
    ) -> None:
        whole_s, first_s = (None if s is None else self.now_s + s for s in deadlines)
        for _ in range(copies):
            id = len(self.submits)
            self.submits[id] = make_submit(
                id,
                prompt,
                limits=Limits(max_tokens, **dict.fromkeys(limited, self.now_s + 7)),
                sampling=sampling,
                arrival_s=self.now_s,
                priority=priority,
                tenant=of[0],
                namespace=of[1],
                deadline_s=whole_s,
                first_token_deadline_s=first_s,
            )
            self.core.submit(self.submits[id])

    @rule(seconds=st.sampled_from([0.5, 5.0, 300.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(costs=COSTS)
    def measure(self, costs: StepCosts) -> None:
        self.core.costs = costs

    @rule(variant=st.sampled_from([*EVERY, *ERRATIC]))
    def exchange(self, variant: str) -> None:
        self.core.planner.exchange(variant, made(variant))

    @rule(data=st.data(), reason=st.sampled_from([Finish.CANCELLED, Finish.STOP]))
    def end(self, data: st.DataObject, reason: Finish) -> None:
        """Also of one that is unknown, and twice."""
        self._cut(data.draw(st.integers(0, len(self.submits))), reason)
        residency, step = self.core.residency, self.step
        for request in step.computing if step else ():
            assert residency.pages.holds(request.id), "released under a step in flight"
        for request in step.swapped_out if step else ():
            assert residency.host.holds(request.id), "released under a copy in flight"

    @precondition(lambda self: self.step is None)
    @rule(count=st.integers(1, 4))
    def steps(self, count: int) -> None:
        for _ in range(count):
            self.begin()
            self.finish()

    @precondition(lambda self: self.step is None)
    @rule()
    def begin(self) -> None:
        self.now_s += 0.25
        self.step = self.core.begin(self.now_s)
        assert self.step or not self.core.has_work, (
            "nothing is computed though somebody is here"
        )

    @precondition(lambda self: self.step is not None)
    @rule()
    def finish(self) -> None:
        if self.step is not None:
            self._land(self.toy.step(self.step.batch))

    @precondition(lambda self: self.step is not None and self.step.batch.rows)
    @rule(data=st.data())
    def row_fails_alone(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(self.step.batch.rows))
        result = dict(self.toy.step(self.step.batch).rows)
        self._spoil(row)
        self._land(StepResult(result | {row.request: RowResult(error="NaN in the logits")}))

    @precondition(lambda self: self.step is not None)
    @rule()
    def step_fails(self) -> None:
        """Some of the batch was written, and wrong, before the step raised."""
        before = self.core.residency.pages.version
        self.toy.step(StepBatch((), (), self.step.batch.swap_in))
        for row in self.step.batch.rows[:1]:
            self._spoil(row)
        step, self.step = self.step, None
        self.core.fail(step, "raised", self.now_s)
        assert self.core.residency.pages.version == before, "published what failed"
        self._check_at_rest()

    def teardown(self) -> None:
        if self.core is None:
            return
        self.finish()
        self._run_out()
        stats, residency = self.answers.stats, self.core.residency
        assert (stats.running, stats.waiting, stats.swapped) == (0, 0, 0)
        assert not stats.short_rows, "granted more pages than there were"
        assert residency.pages.free_pages == residency.pages.capacity
        assert residency.host.free_pages == residency.host.num_pages
        assert self.answers.finish.keys() == self.submits.keys()
        for submit in self.submits.values():
            self._judge(submit)

    def _cut(self, id: int, reason: Finish) -> None:
        if id in self.core.requests:
            self.cut.add(id)
        self.core.end(id, reason, self.now_s)
        self.core.end(id, reason, self.now_s)

    def _land(self, result: StepResult) -> None:
        step, self.step = self.step, None
        self.core.finish(step, result, self.now_s)
        self.answers.take(self.core)
        self._check_at_rest()

    def _spoil(self, row: Row) -> None:
        """What the row wrote is worth nothing."""
        nonsense = replace(row, tokens=[99] * len(row.tokens), samples=False)
        self.toy.step(StepBatch([nonsense]))

    def _check_at_rest(self) -> None:
        """What holds between steps: nobody is touched, and nobody has what was not asked
        for."""
        residency = self.core.residency
        assert not self.core.draining
        assert residency.host.owners() == self.core.swapped.keys(), "host pages after resuming"
        assert residency.pages.owners() == self.core.running.keys(), "pages without running"
        for request in self.core.running.values():
            assert residency.unused_slots(request) < residency.page_size, "pages for nothing"

    def _run_out(self) -> None:
        for _ in range(1000):
            if not self.core.has_work:
                break
            self.steps(1)
        self.answers.take(self.core)
        assert not self.core.has_work, "somebody never ends"

    def _judge(self, submit: Submit) -> None:
        id, finish = submit.id, self.answers.finish[submit.id]
        alone, got = solo(submit), self.answers.tokens.get(id, [])
        assert got == alone[: len(got)], f"{id} says something else than alone"
        if finish is Finish.LENGTH or (finish is Finish.STOP and id not in self.cut):
            assert got == alone, f"{id} ends before it does alone"
        if finish is Finish.REFUSED:
            assert not got, "refused with output"
            assert (submit.deadline_s, submit.first_token_deadline_s) != (None, None)


def made(variant: str) -> Scheduler:
    if variant in ERRATIC:
        return Erratic(ErraticOptions(ERRATIC.index(variant)))
    return strategy(variant)


@pytest.mark.parametrize("variant", [*EVERY, ERRATIC[0]])
def test_no_order_of_events_breaks_a_strategy(variant: str) -> None:
    run_state_machine_as_test(
        lambda: StrategyMachine(variant),
        settings=settings(max_examples=10, stateful_step_count=30, deadline=None),
    )
