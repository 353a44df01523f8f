"""Steps between the core's decision and the model's answer."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from models.batch import Landed, Landing, Runner, StepBatch
from models.errors import DeviceLost, ModelError
from service.core import Core
from service.costs import CostMeter
from service.step import Step

log = structlog.get_logger()

Launch = Callable[[StepBatch], Landing]


class EngineBroken(Exception):
    """The engine cannot go on; its process has to end."""


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step that was started at `began_s`, and was over at `over_s` if it was before it
    landed."""

    step: Step
    landing: Landing
    began_s: float
    over_s: float | None


class Flights:
    """Starts steps, lands them in order, and tells the core how they went.

    At most as many as the core's `steps_in_flight`. A step that raises ends its own rows;
    `faults` counts those in a row. One without memory or device raises EngineBroken. Raises
    ModelError when the runner takes one step at a time and two are wanted.
    """

    def __init__(
        self,
        core: Core,
        runner: Runner,
        clock: Callable[[], float],
        meter: CostMeter | None = None,
    ) -> None:
        self._core = core
        self._clock = clock
        self._most = core.steps_in_flight
        self._launch = _launch(runner, self._most)
        self._open = deque[_Flight]()
        self._landed_s = 0.0
        self._meter = meter or CostMeter()
        core.costs = self._meter.costs
        self.faults = 0

    def start(self, step: Step, at_s: float) -> None:
        """Put a step into flight. One that cannot be started is told after those before it
        have landed, so that the core hears of steps in order."""
        try:
            landing = self._launch(step.batch)
        except Exception as error:
            self._land_down_to(0)
            self._failed(step, error)
        else:
            over_s = self._clock() if isinstance(landing, Landed) else None
            self._open.append(_Flight(step, landing, at_s, over_s))

    def land(self, all_of_them: bool) -> bool:
        """Land what leaves no room for another step, or everything. Whether any did."""
        return self._land_down_to(0 if all_of_them else self._most - 1)

    def _land_down_to(self, most: int) -> bool:
        lands = len(self._open) > most
        while len(self._open) > most:
            self._land(self._open.popleft())
        return lands

    def _land(self, flight: _Flight) -> None:
        step = flight.step
        try:
            result = flight.landing()
        except Exception as error:
            self._failed(step, error)
            return
        self.faults = 0
        if result.again is not None:
            log.warning("step_computed_again", why=result.again)
        now_s = self._clock()
        ended_s = now_s if flight.over_s is None else flight.over_s
        # Of two in flight the later one waits for the earlier, which costs it nothing.
        began_s = max(flight.began_s, self._landed_s)
        self._landed_s = ended_s
        self._meter.observe(step.batch, ended_s - began_s, result.copy_s)
        self._core.costs = self._meter.costs
        self._core.finish(step, result, now_s)

    def _failed(self, step: Step, error: Exception) -> None:
        if isinstance(error, MemoryError):
            raise EngineBroken("a step ran out of memory") from error
        if isinstance(error, DeviceLost):
            raise EngineBroken(f"the device is lost: {error}") from error
        self.faults += 1
        log.error("step_raised", in_a_row=self.faults, exc_info=error)
        self._landed_s = self._clock()
        self._core.fail(step, f"{type(error).__name__}: {error}", self._landed_s)


def _launch(runner: Runner, steps_in_flight: int) -> Launch:
    if steps_in_flight == 1:
        return lambda batch: partial(runner.step, batch)
    start: Launch | None = getattr(runner, "start", None)
    if start is None:
        raise ModelError(
            f"engine.steps_in_flight is {steps_in_flight}, but this model computes one step "
            "at a time"
        )
    return start
