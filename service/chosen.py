"""Which strategy the next engine starts with."""

import structlog

from schedulers.registry import BUILT_IN
from service.messages import SchedulerSet, SetScheduler
from service.settings import SchedulerChoice

STAND_IN = "fcfs"

log = structlog.get_logger()


class ChosenScheduler:
    """The configured one, until another is put in place; FCFS in the place of one that struck
    out, or that an engine died with or did not come up with, until the next exchange.
    `replaces` names that one."""

    def __init__(self, configured: SchedulerChoice) -> None:
        self.choice = configured
        self.replaces = ""
        self._asked: dict[int, SetScheduler] = {}

    @property
    def is_asked(self) -> bool:
        """The engine owes an answer."""
        return bool(self._asked)

    def asked(self, command: SetScheduler) -> None:
        """The engine was asked for another strategy."""
        self._asked[command.ticket] = command

    def answered(self, answer: SchedulerSet) -> None:
        """The engine has it in place, or refused."""
        asked = self._asked.pop(answer.ticket)
        if answer.error is None:
            self._choose(asked.name, asked.options)
            self.replaces = ""

    def planned_by(self, name: str) -> None:
        """A step's strategy. FCFS, where another was chosen, stands in for one that struck
        out, until the next exchange."""
        if name == STAND_IN != self.choice.name:
            self._stand_in()

    def engine_gone(self, suspect: int | None) -> None:
        """The engine ended or did not come up, and which strategy was planning or being made
        then, if one was (see `Suspect`): it never came back, could not be made, or took the
        process with it. One whose exchange was not answered was not chosen."""
        asked, self._asked = self._asked, {}
        if suspect is None:
            return
        unanswered = asked.get(suspect)
        name = unanswered.name if unanswered else self.choice.name
        if name in BUILT_IN:  # those are ours: somebody else killed it
            return
        if unanswered is None:
            self._stand_in()
        log.error("scheduler_blamed", scheduler=name, stands_in=self.choice.name)

    def _stand_in(self) -> None:
        self.replaces = self.choice.name
        self._choose(STAND_IN, {})

    def _choose(self, name: str, options: dict[str, object]) -> None:
        self.choice = self.choice.model_copy(update={"name": name, "options": options})
