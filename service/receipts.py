"""What the scheduler did to a request, as messages of the wire."""

from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration

from protos.walkway.v1 import inference_pb2 as pb
from schedulers.interface import Cause, Mode
from service.call import Call, Resumption
from service.messages import Pause

MODES = {
    Mode.RECOMPUTE: pb.EVICTION_MODE_RECOMPUTE,
    Mode.SWAP: pb.EVICTION_MODE_SWAP,
}
CAUSES = {
    Cause.PAGES: pb.EVICTION_CAUSE_PAGES,
    Cause.ROWS: pb.EVICTION_CAUSE_ROWS,
    Cause.PRIORITY: pb.EVICTION_CAUSE_PRIORITY,
    Cause.FAIRNESS: pb.EVICTION_CAUSE_FAIRNESS,
    Cause.DEADLINE: pb.EVICTION_CAUSE_DEADLINE,
}

LONGEST_S = 1e9  # of an estimate; the message ends at ten times that


def scheduling_receipt(call: Call) -> pb.SchedulingReceipt | None:
    """None when the engine died before it could say."""
    receipt = call.receipt
    if receipt is None:
        return None
    return pb.SchedulingReceipt(
        queue=duration(call.queue_s),
        steps=receipt.steps,
        cached_tokens=receipt.cached_tokens,
        recomputed_tokens=receipt.recomputed_tokens,
        swapped_pages=receipt.swapped_pages,
        paused=duration(receipt.paused_s),
        preemptions=receipt.preemptions,
        evictions=map(_eviction, receipt.pauses),
        share_tokens=receipt.share_tokens,
    )


def scheduling_events(events: Iterable[Pause | Resumption]) -> list[pb.SchedulingEvent]:
    """News of a stream whose caller wants to know."""
    return [
        pb.SchedulingEvent(preempted=_eviction(event))
        if isinstance(event, Pause)
        else pb.SchedulingEvent(resumed=pb.Resumption(at=duration(event.at_s)))
        for event in events
    ]


def duration(length_s: float | None) -> Duration | None:
    """None for what never happened, so that the field stays absent."""
    if length_s is None:
        return None
    message = Duration()
    message.FromNanoseconds(int(length_s * 1e9))
    return message


def _eviction(pause: Pause) -> pb.Eviction:
    return pb.Eviction(
        at=duration(pause.at_s),
        mode=MODES[Mode(pause.mode)],
        cause=CAUSES[Cause(pause.cause)],
        pages=pause.pages,
        swap_estimate=_estimate(pause.swap_s),
        recompute_estimate=_estimate(pause.recompute_s),
    )


def _estimate(length_s: float | None) -> Duration | None:
    """A strategy may estimate what no duration holds: then there is no number to give."""
    return duration(length_s) if length_s is not None and 0 <= length_s <= LONGEST_S else None
