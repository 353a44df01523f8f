"""What the engine holds now, for people who look in."""

from service.core import Core
from service.messages import Inspect, Inspected, RequestState, SchedulerState
from service.request import Request


def inspect(core: Core, command: Inspect, now_s: float) -> Inspected:
    """All live requests, those that drain included. O(requests), between two steps: 10,000
    take about as long as a step. The generation is not filled in."""
    planner = core.planner
    scheduler = SchedulerState(
        name=planner.name,
        options=dict(planner.options),
        faults=planner.all_faults,
        replaces=planner.replaces,
    )
    live = core.requests.values() if command.requests else ()
    requests = [_state(core, request, now_s) for request in live]
    return Inspected(0, command.ticket, scheduler, requests)


def _state(core: Core, request: Request, now_s: float) -> RequestState:
    host = core.residency.host
    return RequestState(
        id=request.id,
        state=request.state.value,
        tenant=request.tenant,
        priority=request.priority,
        age_s=max(0.0, now_s - request.arrival_s),
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        computed_tokens=request.computed,
        pages=core.residency.held_pages(request.id),
        host_pages=len(host.table(request.id)) if host.holds(request.id) else 0,
        preemptions=request.preemptions,
        recomputed_tokens=request.recomputed_tokens,
    )
