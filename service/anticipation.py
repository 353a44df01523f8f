"""What lets a step be planned while the one before it is in flight.

That one is counted as done: its tokens as computed, the token that a row draws as known,
though nobody knows which it is (`models.batch.IN_FLIGHT`). When it returns this is taken
back first, so that a step is accepted in one way, however many are in flight.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from models.batch import IN_FLIGHT
from schedulers.interface import Plan, RequestId
from service.places import Places
from service.request import DRAINING, RUNNING, Move, Request
from service.step import Step

MOST_STEPS = 2


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan to carry out. `cached` is how many cached tokens it counted with for those that
    join, where the cache may have grown since."""

    plan: Plan
    cached: Mapping[RequestId, int] = field(default_factory=dict)


class Anticipation:
    """Steps in flight, and a plan that has to wait for them: one that evicts somebody whom
    they touch. `cached_tokens` as in `schedulers.interface.PageArithmetic`."""

    def __init__(
        self,
        places: Places,
        cached_tokens: Callable[[RequestId], int],
        free_pages: Callable[[], int],
    ) -> None:
        self._places = places
        self._cached_tokens = cached_tokens
        self._free_pages = free_pages
        self._flights: list[Step] = []
        self._held: Decision | None = None
        self._free_then = 0

    @property
    def waits(self) -> bool:
        """A decision was kept and not asked for since."""
        return self._held is not None

    def anticipate(self) -> None:
        """Before a plan is made: count what is in flight as done."""
        assert len(self._flights) < MOST_STEPS, "so many steps are in flight already"
        for step in self._flights:
            if not step.anticipated:
                self._count(step)

    def begun(self, step: Step) -> None:
        """The step is in flight."""
        self._flights.append(step)

    def returned(self, step: Step) -> None:
        """The step is to be accepted, or failed: as if nothing had been counted before."""
        oldest = self._flights.pop(0)
        assert oldest is step, "steps return in the order in which they began"
        if step.anticipated:
            _take_back(step)

    def holds(self, decision: Decision) -> bool:
        """Whether the decision has to wait; then it is kept. Nothing is released under a
        step in flight."""
        requests = self._places.requests
        if not any(requests[id].in_flight for id in decision.plan.evict):
            return False
        joining = [id for id in decision.plan.tokens if id in self._places.waiting]
        cached = decision.cached or {id: self._cached_tokens(id) for id in joining}
        self._held = Decision(decision.plan, cached)
        self._free_then = self._free_pages()
        return True

    def kept(self) -> Decision | None:
        """The decision that waited, without those that ended meanwhile. None when there is
        none, when nothing to compute is left of it, or when pages came free: they may be those
        that somebody was to be evicted for, or a victim's that ended."""
        held, self._held = self._held, None
        if held is None or self._free_pages() > self._free_then:
            return None
        tokens = {id: count for id, count in held.plan.tokens.items() if self._goes_on(id)}
        return Decision(Plan(tokens, held.plan.evict), held.cached) if tokens else None

    def _goes_on(self, id: RequestId) -> bool:
        request = self._places.requests.get(id)
        return request is not None and request.state is not DRAINING

    def _count(self, step: Step) -> None:
        step.anticipated = True
        for request, row in zip(step.computing, step.batch.rows, strict=True):
            request.computed += len(row.tokens)
            if row.samples:
                request.append(IN_FLIGHT)
            if request.state is RUNNING and _is_whole(request):
                request.owed = True
                self._places.move(request, Move.DRAIN)


def _is_whole(request: Request) -> bool:
    prompt_done = request.computed >= request.prompt_tokens
    return prompt_done and request.output_tokens >= request.submit.limits.max_tokens


def _take_back(step: Step) -> None:
    for request, row in zip(step.computing, step.batch.rows, strict=True):
        request.computed -= len(row.tokens)
        if row.samples:
            request.forget_last()
