"""A strategy to simulate."""

from dataclasses import dataclass, field
from typing import Any

from schedulers.interface import Scheduler
from service.strategy import make_scheduler


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy and its options; `label` names it among others."""

    label: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def make(self) -> Scheduler:
        """A new one. Raises UnknownScheduler or BadOptions."""
        return make_scheduler(self.name, self.options)
