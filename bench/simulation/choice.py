"""A strategy to simulate."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.simulation.peers import PEERS
from schedulers.interface import Scheduler
from schedulers.registry import UnknownScheduler, available
from service.strategy import make_scheduler


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy and its options; `label` names it among others. `wrap` puts something around
    it that watches it."""

    label: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    wrap: Callable[[Scheduler], Scheduler] | None = None

    @property
    def target(self) -> str:
        """What `schedulers.registry.find` knows it by. Raises UnknownScheduler, naming the
        peers too."""
        if self.is_peer:
            return PEERS[self.name]
        if ":" not in self.name and self.name not in available():
            known, peers = ", ".join(sorted(available())), ", ".join(PEERS)
            raise UnknownScheduler(
                f"scheduler {self.name!r} is unknown; there are: {known}; "
                f"for comparison: {peers}"
            )
        return self.name

    @property
    def is_peer(self) -> bool:
        """Whether it is another engine's policy, which the service does not offer."""
        return self.name in PEERS and self.name not in available()

    def make(self) -> Scheduler:
        """A new one. Raises UnknownScheduler or BadOptions."""
        made = make_scheduler(self.target, self.options)
        return made if self.wrap is None else self.wrap(made)
