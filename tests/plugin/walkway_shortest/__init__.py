"""The shortest prompt first, with ageing: an example of a scheduler plug-in for walkway."""

from dataclasses import dataclass, field
from typing import ClassVar

from schedulers.draft import Draft
from schedulers.interface import ALWAYS, Plan, Promise, RequestView, Snapshot
from schedulers.queue import WaitingQueue
from schedulers.running import continue_running


@dataclass(frozen=True, slots=True)
class ShortestOptions:
    """Options of `shortest_prompt`."""

    token_s: float = field(default=0.01, metadata={"doc": "Wait that outweighs a token."})

    def __post_init__(self) -> None:
        if self.token_s < 0:
            raise ValueError(f"token_s is {self.token_s}, must not be negative")


class Shortest:
    """Nobody goes ahead of a prompt of n tokens who arrives more than n * token_s later."""

    Options: ClassVar[type[ShortestOptions]] = ShortestOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS | {
        Promise.NO_STARVATION,
        Promise.WORK_CONSERVING,
    }

    def __init__(self, options: ShortestOptions) -> None:
        self._token_s = options.token_s
        self._queue = WaitingQueue(self._key)

    def plan(self, snap: Snapshot) -> Plan:
        self._queue.sync(snap)
        draft = Draft(snap)
        continue_running(snap, draft, rank=self._key)
        if not draft.evicted:
            for view in self._queue.candidates(snap):
                if not draft.admit(view):
                    break
        return draft.plan()

    def _key(self, view: RequestView) -> float:
        return view.arrival_s + self._token_s * view.prompt_tokens
