"""FastServe's skip-join multi-level feedback queue (Wu et al., "Fast Distributed Inference
Serving for Large Language Models", arXiv 2305.05920, NSDI 2026).

A level's quantum is twice that of the level above; the top one's is the time of the shortest
step. A request joins at the first level whose quantum its prefill fits in, is demoted by one
when it has used up its quantum, and goes to the top when it has not run for `starve_s`. That is
a setting; the default is long, because under overload a short one makes every request preempt.

Left out: FastServe keeps the pages of preempted requests on the device while there is room and
moves them ahead of time, while others compute. Here a request without a row keeps no pages, so
each preemption is a swap that the steps wait for, or a recomputation where the host has no
room. The paper has no chunked prefill; here decode rows and chunks share a step.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import ClassVar

from bench.simulation.peers.levels import Levels
from schedulers.draft import Draft
from schedulers.eviction import Evictions
from schedulers.interface import (
    ALWAYS,
    Cause,
    Eviction,
    Plan,
    Promise,
    RequestView,
    Snapshot,
)
from schedulers.order import share
from schedulers.preempt import make_room
from schedulers.queue import WaitingQueue
from schedulers.running import Running, last_first

LEAST_QUANTUM_S = 0.001


@dataclass(frozen=True, slots=True)
class MLFQOptions:
    """Options of `mlfq`."""

    quantum_s: float = field(
        default=0.0, metadata={"doc": "Of the top level, seconds; 0: a step with one row."}
    )
    starve_s: float = field(
        default=300.0, metadata={"doc": "One that did not run for so long goes to the top."}
    )

    def __post_init__(self) -> None:
        if not 0 <= self.quantum_s < float("inf"):
            raise ValueError(f"quantum_s is {self.quantum_s}, it must be 0 or more and finite")


class MLFQ:
    """The highest level first, in a level by turn. One that finds no row or no pages preempts
    those of lower levels, the last of them first."""

    Options: ClassVar[type[MLFQOptions]] = MLFQOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS

    def __init__(self, options: MLFQOptions) -> None:
        self.options = options
        self._reset()

    def _reset(self) -> None:
        self._levels = Levels(self.options.starve_s)
        self._queue = WaitingQueue(self._levels.key)
        self._last = Plan()

    def plan(self, snap: Snapshot) -> Plan:
        if snap.rebuild:
            self._reset()
        costs, key = snap.costs, self._levels.key
        quantum_s = self.options.quantum_s or costs.step_s + costs.row_s
        self._levels.observe(snap, self._last, max(quantum_s, LEAST_QUANTUM_S))
        self._queue.sync(snap)
        draft, how = Draft(snap), Evictions("swap", snap)
        ranked: list[RequestView] = []

        def join(view: RequestView) -> bool:
            if draft.admit(view):
                return True
            if not ranked:
                ranked.extend(last_first(snap.running.values(), key))
            level, _ = key(view)
            lower = takewhile(lambda other: key(other)[0] > level, ranked)
            victims = (other for other in lower if other.id not in draft.evicted)
            return make_room(draft, view, victims, preempted) and draft.admit(view) > 0

        def preempted(victim: RequestView) -> Eviction:
            return how(victim, Cause.FAIRNESS)

        running = Running(snap, draft, how, key)
        share(snap, draft, running, self._candidates(snap), key, join)
        self._last = draft.plan()
        return self._last

    def _candidates(self, snap: Snapshot) -> Iterator[RequestView]:
        yield from self._levels.starved(snap)
        for view in self._queue.candidates(snap):
            if not self._levels.is_starved(view):
                yield view
