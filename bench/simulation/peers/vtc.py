"""The virtual token counter of Sheng et al., "Fairness in Serving Large Language Models" (OSDI
2024), as the paper's first algorithm has it.

Left out: predicted lengths and other cost functions. The paper has no prefix cache: a prompt is
charged whole, at first admission, whether cached or not. It has no preemption either; when
pages are short, the newest is preempted here by recomputation, and is not charged again.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from schedulers.draft import Draft
from schedulers.interface import ALWAYS, Plan, Promise, Snapshot
from schedulers.queue import WaitingQueue
from schedulers.running import by_age, continue_running


@dataclass(frozen=True, slots=True)
class VTCOptions:
    """Options of `vtc`."""

    input_weight: float = field(default=1.0, metadata={"doc": "Cost of a prompt token."})
    output_weight: float = field(default=2.0, metadata={"doc": "Cost of an output token."})


class VTC:
    """The tenant with the least counter is next, with its oldest request, up to the first that
    does not fit. One that comes back is lifted to the least counter of those that wait, or to
    that of the last one admitted when none does."""

    Options: ClassVar[type[VTCOptions]] = VTCOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS

    def __init__(self, options: VTCOptions) -> None:
        self.options = options
        self._queue = WaitingQueue(by_age, lane=lambda view: view.tenant)
        self._counters: dict[str, float] = {}
        self._output: dict[str, int] = {}
        self._last: str | None = None

    def plan(self, snap: Snapshot) -> Plan:
        self._observe(snap)
        draft = Draft(snap)
        continue_running(snap, draft)
        if not draft.evicted and all(draft.admit(view) for view in snap.swapped.values()):
            self._admit(snap, draft)
        return draft.plan()

    def _observe(self, snap: Snapshot) -> None:
        """Charge what was answered, lift the tenants that come back."""
        if snap.rebuild:
            self._counters, self._last = {}, None
            self._output = {tenant: had.output_tokens for tenant, had in snap.served.items()}
        for tenant, served in snap.served.items():
            more = served.output_tokens - self._output.get(tenant, 0)
            self._counters[tenant] = self._of(tenant) + self.options.output_weight * more
            self._output[tenant] = served.output_tokens
        waited = set(self._queue.lanes)
        self._queue.sync(snap)
        stayed = [self._of(tenant) for tenant in waited & self._queue.lanes]
        floor = min(stayed) if stayed else self._of(self._last)
        for tenant in self._queue.lanes - waited:
            self._counters[tenant] = max(floor, self._of(tenant))

    def _of(self, tenant: str | None) -> float:
        return 0.0 if tenant is None else self._counters.get(tenant, 0.0)

    def _admit(self, snap: Snapshot, draft: Draft) -> None:
        lanes = {tenant: self._queue.candidates(snap, tenant) for tenant in self._queue.lanes}
        while lanes:
            tenant = min(lanes, key=lambda one: (self._of(one), one))
            view = next(lanes[tenant], None)
            if view is None:
                del lanes[tenant]
            elif view.id in snap.swapped:
                continue
            elif draft.admit(view):
                self._last = tenant
                if not view.preemptions:
                    self._charge(tenant, view.prompt_tokens)
            else:
                return

    def _charge(self, tenant: str, prompt_tokens: int) -> None:
        self._counters[tenant] = self._of(tenant) + self.options.input_weight * prompt_tokens
