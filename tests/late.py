"""Steps in flight by hand: a runner that computes when a step is landed, and what drives a
core with two of them."""

from collections import deque
from dataclasses import dataclass, replace

from models.batch import IN_FLIGHT, Landing, Row, StepBatch, StepResult
from models.toy import ToyRunner
from service.core import Core, Step
from tests.cores import Answers, make_toy


class Late:
    """Computes a step on the toy when it is landed, from what its batch held when it was
    started; steps that are not landed in order raise."""

    def __init__(self, toy: ToyRunner) -> None:
        self.toy = toy
        self.most = 0  # steps that were in flight at once
        self._started = 0
        self._landed = 0

    def start(self, batch: StepBatch) -> Landing:
        read, number = copied(batch), self._started
        self._started += 1
        self.most = max(self.most, self._started - self._landed)

        def land() -> StepResult:
            assert self._landed == number, "landed out of order"
            self._landed += 1
            return self.toy.start(read)()

        return land

    def step(self, batch: StepBatch) -> StepResult:
        return self.start(batch)()

    def lose(self, batch: StepBatch) -> None:
        """The oldest step fails. What it wrote is wrong, and a later step may read it."""
        self._landed += 1
        self.toy.step(StepBatch((), batch.swap_out, batch.swap_in))
        for row in batch.rows:
            self.spoil(row)

    def spoil(self, row: Row) -> None:
        """What the row wrote is worth nothing."""
        nonsense = replace(row, tokens=[99] * len(row.tokens), samples=False)
        self.toy.step(StepBatch([nonsense]))


def copied(batch: StepBatch) -> StepBatch:
    """The batch as it is now."""
    rows = [
        replace(
            row,
            tokens=list(row.tokens),
            pages=list(row.pages),
            prompt=list(row.prompt),
            output=list(row.output),
        )
        for row in batch.rows
    ]
    return StepBatch(rows, list(batch.swap_out), list(batch.swap_in))


@dataclass
class Flight:
    """A step, what was read of its batch, and its landing."""

    step: Step
    batch: StepBatch
    landing: Landing


class Airfield:
    """A core and a late toy with at most so many steps in flight as the core has it."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.late = Late(make_toy(core))
        self.flights: deque[Flight] = deque()
        self.answers = Answers()
        self.went_on = 0  # rows that began with a token in flight

    def begin(self, now_s: float = 0.0) -> Step | None:
        """Begin a step and start it."""
        step = self.core.begin(now_s)
        if step is not None:
            batch = copied(step.batch)
            self.flights.append(Flight(step, batch, self.late.start(step.batch)))
            self.went_on += sum(row.tokens[-1] == IN_FLIGHT for row in batch.rows)
        return step

    def land(self, now_s: float = 0.0) -> None:
        """Land the oldest step and collect the news."""
        flight = self.flights.popleft()
        self.core.finish(flight.step, flight.landing(), now_s)
        self.answers.take(self.core)

    def fail(self, now_s: float = 0.0) -> None:
        """The oldest step raises."""
        flight = self.flights.popleft()
        self.late.lose(flight.batch)
        self.core.fail(flight.step, "raised", now_s)
        self.answers.take(self.core)

    def turn(self, now_s: float = 0.0) -> Step | None:
        """What the loop does: begin one, land what leaves no room for another."""
        step = self.begin(now_s)
        least = 0 if step is None else self.core.steps_in_flight - 1
        while len(self.flights) > least:
            self.land(now_s)
        return step

    def run(self, now_s: float = 0.0, turns: int = 1000) -> Answers:
        """Until nobody is left."""
        while len(self.flights) == self.core.steps_in_flight:
            self.land(now_s)
        for _ in range(turns):
            if not self.core.has_work:
                break
            self.turn(now_s)
        self.answers.take(self.core)
        assert not self.core.has_work, "somebody never ends"
        return self.answers
