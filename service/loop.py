"""The decode loop: the one place where the core meets the clock, the model and the channel."""

import time
from collections.abc import Callable

from models.batch import Runner
from service.channel import EngineSocket, Told
from service.core import Core
from service.costs import CostMeter
from service.exchange import exchange
from service.flights import EngineBroken, Flights
from service.inspection import inspect
from service.messages import End, Inspect, Ping, SetScheduler, StepStats, Stop, Submit
from service.outbox import merge_stats
from service.suspect import Suspect

__all__ = ["MAX_FAULTS", "NO_STEP_WAIT_S", "DecodeLoop", "EngineBroken"]

MAX_FAULTS = 3
NO_STEP_WAIT_S = 0.01


class DecodeLoop:
    """Runs steps for as long as there is work, and sleeps on the channel otherwise.

    A step that raises ends its own rows and the loop goes on. `MAX_FAULTS` such steps in a
    row, or one without memory or device, raise EngineBroken; whatever the core raises is a
    bug of ours and ends the loop as well. `clock` is the machine's monotonic clock, in
    seconds. With two `steps_in_flight`, as the core has it, the next step is decided while
    one is computed; the runner is then an `AheadRunner`, else ModelError is raised.
    `suspect` is told which strategy is in place; `meter` may know the costs of steps already.
    """

    def __init__(
        self,
        core: Core,
        runner: Runner,
        channel: EngineSocket,
        clock: Callable[[], float] = time.monotonic,
        suspect: Suspect | None = None,
        meter: CostMeter | None = None,
    ) -> None:
        self._core = core
        self._suspect = suspect or Suspect()
        self._channel = channel
        self._clock = clock
        self._flights = Flights(core, runner, clock, meter)
        self._unsaid = StepStats()

    def run(self) -> None:
        """Until the front end says stop."""
        wait_s: float | None = None
        while True:
            commands = self._channel.receive(wait_s)
            for command in commands:
                if isinstance(command, Stop):
                    return
                self._obey(command)
            began_s = self._clock()
            step = self._core.begin(began_s)
            planned_s = self._clock()
            if step is not None:
                self._flights.start(step, planned_s)
            landed = self._flights.land(all_of_them=step is None)
            self._report(planned_s - began_s, worth_it=landed or bool(commands))
            if self._flights.faults >= MAX_FAULTS:
                raise EngineBroken(f"{MAX_FAULTS} steps in a row raised")
            wait_s = self._wait_s(busy=landed or step is not None)

    def _obey(self, command: Told) -> None:
        match command:
            case Submit():
                self._core.submit(command)
            case End():
                self._core.end(command.id, command.reason, self._clock())
            case SetScheduler():
                self._exchange(command)
            case Inspect():
                self._channel.answer(inspect(self._core, command, self._clock()))
            case Ping():
                pass  # a command alone is answered by a report

    def _exchange(self, command: SetScheduler) -> None:
        answer = exchange(self._core.planner, command, self._clock)
        if answer.error is None:
            self._suspect.in_place = command.ticket
        self._channel.answer(answer)

    def _report(self, schedule_s: float, worth_it: bool) -> None:
        events, stats = self._core.take_events()
        stats.schedule_s += schedule_s
        stats = merge_stats(self._unsaid, stats)
        # An acknowledgement that woke the loop is no reason to say something: it would be
        # acknowledged again, for ever.
        if worth_it or events:
            self._channel.send(events, stats)
            stats = StepStats()
        self._unsaid = stats

    def _wait_s(self, busy: bool) -> float | None:
        if not self._core.has_work:
            return None
        # Nothing to compute though somebody waits: only a command or time (a deadline)
        # changes that, and spinning would take a core from the front end.
        return 0 if busy else NO_STEP_WAIT_S
