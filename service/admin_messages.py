"""The operator's messages to values and back."""

from collections.abc import Callable
from typing import Any

from google.protobuf.struct_pb2 import Struct, Value

from protos.walkway.v1 import admin_pb2 as pb
from service.fields import Fields
from service.messages import Inspected, RequestState, SchedulerState
from service.receipts import duration
from service.request import State
from service.statistics import Statistics

MAX_EXACT = 2**53  # a Struct's numbers are doubles
MAX_STRATEGY_BYTES = 512
MAX_LISTED = 10_000
DEFAULT_LISTED = 100
SHORTEST_S, LONGEST_S, DEFAULT_S = 0.1, 3600.0, 1.0

STATES = {
    State.WAITING.value: pb.REQUEST_STATE_WAITING,
    State.RUNNING.value: pb.REQUEST_STATE_RUNNING,
    State.SWAPPED.value: pb.REQUEST_STATE_SWAPPED,
    State.DRAINING.value: pb.REQUEST_STATE_DRAINING,
}


def choice_of(request: pb.SetSchedulerRequest) -> tuple[str, dict[str, Any]]:
    """Name and options. Raises InvalidArgument."""
    fields = Fields()
    fields.bytes("name", request.name, MAX_STRATEGY_BYTES, least=1)
    fields.settle()
    return request.name, options_of(request.options)


def options_of(options: Struct) -> dict[str, Any]:
    """As plain values."""
    return {name: _value(value) for name, value in options.fields.items()}


def limit_of(request: pb.ListRequestsRequest) -> int:
    """How many to list. Raises InvalidArgument."""
    if not request.HasField("limit"):
        return DEFAULT_LISTED
    fields = Fields()
    fields.between("limit", request.limit, 1, MAX_LISTED)
    fields.settle()
    return request.limit


def interval_of(request: pb.StreamStatisticsRequest) -> float:
    """Seconds. Raises InvalidArgument."""
    if not request.HasField("interval"):
        return DEFAULT_S
    interval_s = request.interval.seconds + request.interval.nanos / 1e9
    fields = Fields()
    fields.duration("interval", request, "interval")
    fields.settle()
    fields.between("interval", interval_s, SHORTEST_S, LONGEST_S)
    fields.settle()
    return float(interval_s)


def scheduler(state: SchedulerState) -> pb.Scheduler:
    """A strategy in use."""
    options = Struct()
    options.update(_plain(state.options))
    return pb.Scheduler(
        name=state.name, options=options, faults=state.faults, replaces=state.replaces
    )


def live_requests(
    found: Inspected, limit: int, request_id_of: Callable[[int], str]
) -> pb.ListRequestsResponse:
    """The oldest `limit` requests; `request_id_of` knows the callers' names."""
    oldest = sorted(found.requests, key=lambda request: request.id)[:limit]
    return pb.ListRequestsResponse(
        requests=[_live(request, request_id_of(request.id)) for request in oldest],
        total=len(found.requests),
    )


def statistics(found: Statistics) -> pb.StreamStatisticsResponse:
    """Gauges now, counters since the server started."""
    total = found.total
    return pb.StreamStatisticsResponse(
        uptime=duration(found.uptime_s),
        scheduler=found.scheduler,
        running=total.running,
        waiting=total.waiting,
        swapped=total.swapped,
        free_pages=total.free_pages,
        cached_pages=total.cached_pages,
        held_pages=total.held_pages,
        steps=total.steps,
        input_tokens=total.input_tokens,
        output_tokens=total.output_tokens,
        preemptions=total.preemptions,
        recomputed_tokens=total.recomputed_tokens,
        swapped_pages=total.swapped_pages,
        plan_faults=total.plan_faults,
    )


def _live(request: RequestState, request_id: str) -> pb.LiveRequest:
    return pb.LiveRequest(
        id=request.id,
        request_id=request_id,
        state=STATES[request.state],
        tenant=request.tenant,
        priority=request.priority,
        age=duration(request.age_s),
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        computed_tokens=request.computed_tokens,
        pages=request.pages,
        host_pages=request.host_pages,
        preemptions=request.preemptions,
        recomputed_tokens=request.recomputed_tokens,
    )


def _value(value: Value) -> Any:
    """Whole numbers as integers: a Struct cannot tell 4 from 4.0, an option can."""
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() and abs(number) <= MAX_EXACT else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "list_value":
            return [_value(inner) for inner in value.list_value.values]
        case "struct_value":
            return options_of(value.struct_value)
        case _:
            return None


def _plain(value: Any) -> Any:
    """What a Struct can hold; a TOML file may have said more, such as a date."""
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    known = value is None or isinstance(value, bool | int | float | str)
    return value if known else str(value)
