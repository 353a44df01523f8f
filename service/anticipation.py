"""What lets a step be planned while the one before it is in flight.

That one is counted as done: its tokens as computed, the token that a row draws as known,
though nobody knows which it is (`models.batch.IN_FLIGHT`). When it returns this is taken
back first, so that a step is accepted in one way, however many are in flight.
"""

from models.batch import IN_FLIGHT
from schedulers.interface import Plan
from service.places import Places
from service.request import RUNNING, Move, Request
from service.step import Step

MOST_STEPS = 2


class Anticipation:
    """Steps in flight."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._flights: list[Step] = []

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

    def forbids(self, plan: Plan) -> bool:
        """Whether the plan evicts somebody whom a step in flight touches. Nothing is released
        under one; when it has landed there may be no need to."""
        requests = self._places.requests
        return any(requests[id].in_flight for id in plan.evict)

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
