"""Figures that several scenarios share."""

from collections.abc import Sequence

from bench.overload.client import Reply
from bench.overload.counters import Counted
from bench.samples import percentile


def of_kind(replies: Sequence[Reply], kind: str) -> list[Reply]:
    """Those of one class."""
    return [reply for reply in replies if reply.kind == kind]


def ttft_s(replies: Sequence[Reply], percent: float) -> float:
    """Percentile of the time to first token of those answered; not a number when none was."""
    found = [r.answer.ttft_s for r in replies if r.done and r.answer.ttft_s is not None]
    return percentile(found, percent) if found else float("nan")


def tpot_s(replies: Sequence[Reply], percent: float) -> float:
    """Percentile of the time per output token of those answered."""
    found = [r.answer.tpot_s for r in replies if r.done and r.answer.tpot_s is not None]
    return percentile(found, percent) if found else float("nan")


def total_s(replies: Sequence[Reply], percent: float) -> float:
    """Percentile of the time until the end of those answered."""
    found = [reply.total_s for reply in replies if reply.done]
    return percentile(found, percent) if found else float("nan")


def queue_s(replies: Sequence[Reply], percent: float) -> float:
    """Percentile of the time to the first step, as the service says: without what the front
    end and the client add, which is much of it when the engine is fast."""
    found = [r.queue_s for r in replies if r.done and r.queue_s is not None]
    return percentile(found, percent) if found else float("nan")


def speed(replies: Sequence[Reply]) -> float:
    """Output tokens/s of the requests that were answered, until the last of them ended."""
    done = [reply.answer for reply in replies if reply.done]
    wall_s = max((answer.ended_s for answer in done), default=0.0)
    return sum(answer.output_tokens for answer in done) / wall_s if wall_s else 0.0


def share(some: Sequence[object], all_: Sequence[object]) -> float:
    """Of all, some; 0 of none."""
    return len(some) / len(all_) if all_ else 0.0


def done(replies: Sequence[Reply]) -> list[Reply]:
    """Those answered in full."""
    return [reply for reply in replies if reply.done]


def workings(counted: Counted) -> dict[str, float]:
    """What the service did beside. A plan fault spoils a comparison: another strategy than
    the one named planned that step."""
    return {
        "batch_mean": counted.rows / counted.steps if counted.steps else 0.0,
        "preemptions": counted.preemptions,
        "recomputed_tokens": counted.recomputed_tokens,
        "swapped_pages": counted.swapped_pages,
        "plan_faults": counted.plan_faults,
    }
