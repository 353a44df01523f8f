"""SGLang's policy `lpm`, longest prefix match, as its documentation of `--schedule-policy` and
the paper describe it ("SGLang: Efficient Execution of Structured Language Model Programs",
NeurIPS 2024; cache-aware scheduling over RadixAttention).

Left out: the deferral of waiting requests that share an uncached prefix with an earlier one
(in-batch prefix caching, from 32 tokens on), because a snapshot does not tell what waiting
requests share; separate prefill and decode batches (both share a step here); the estimate of
how much output the running requests will still need (a page for each is kept here).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import merge
from typing import ClassVar

from bench.simulation.peers.sglang import by_output
from schedulers.draft import Draft
from schedulers.interface import ALWAYS, Plan, Promise, RequestView, Snapshot
from schedulers.running import by_age, continue_running


@dataclass(frozen=True, slots=True)
class LPMOptions:
    """Options of `sglang-lpm`."""

    most_waiting: int = field(
        default=128,
        metadata={"doc": "With more waiting than this it is first come, first served."},
    )


class SGLangLPM:
    """The waiting request with the most prompt tokens in the prefix cache is admitted first,
    equals by arrival. Nothing bounds the wait of one without a cached prefix."""

    Options: ClassVar[type[LPMOptions]] = LPMOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS

    def __init__(self, options: LPMOptions) -> None:
        self.options = options

    def plan(self, snap: Snapshot) -> Plan:
        draft = Draft(snap)
        continue_running(snap, draft, rank=by_output)
        if not draft.evicted and draft.rows > 0 and draft.budget:
            for view in self._in_order(snap):
                if not draft.admit(view):
                    break
        return draft.plan()

    def _in_order(self, snap: Snapshot) -> Iterable[RequestView]:
        by_arrival = merge(snap.swapped.values(), snap.waiting.values(), key=by_age)
        if len(snap.waiting) > self.options.most_waiting:
            return by_arrival
        cached = snap.memory.cached_tokens
        return sorted(by_arrival, key=lambda view: -cached(view.id))
