"""Writes down how requests ended: one log line and the metrics of each, none per token."""

import structlog

from service.call import Call
from service.errors import CODES, Overloaded, ServiceError
from service.field_rules import MAX_NAME_BYTES
from service.messages import Receipt
from service.metrics import Metrics

log = structlog.get_logger()


class Records:
    """For requests that were taken (`ended`) and for those that were not (`refused`)."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def refused(self, request_id: str, tenant: str, error: ServiceError) -> None:
        """A request was turned away; its names may be what was wrong with it."""
        code = CODES[type(error)].name
        self._metrics.refused(code)
        log.info(
            "request_refused",
            code=code,
            reason=str(error),
            request_id=request_id[:MAX_NAME_BYTES],
            tenant=tenant[:MAX_NAME_BYTES],
        )

    def ended(self, call: Call) -> None:
        """A request is over, in whatever way."""
        receipt, times = call.receipt, call.times
        queue_s = call.queue_s
        ttft_s = times.after_arrival(times.first_token_s)
        total_s = times.after_arrival(times.end_s)
        self._metrics.finished(call.ending, total_s or 0.0)
        self._metrics.timed(queue_s, ttft_s, _gap_s(call))
        self._metrics.dropped(call.dropped_tokens)
        if receipt and receipt.preemptions:
            self._metrics.paused(receipt.paused_s)
        if isinstance(call.error, Overloaded):
            self._metrics.refused(CODES[Overloaded].name)
        log.info(
            "request_ended",
            id=call.submit.id,
            request_id=call.request_id,
            tenant=call.submit.tenant,
            prompt_tokens=len(call.submit.prompt),
            cached_tokens=receipt.cached_tokens if receipt else None,
            output_tokens=call.output_tokens,
            finish=call.ending,
            queue_s=_rounded(queue_s),
            ttft_s=_rounded(ttft_s),
            total_s=_rounded(total_s),
            **_disturbances(receipt),
        )


def _disturbances(receipt: Receipt | None) -> dict[str, float]:
    """What most requests never meet is left out of their line."""
    if receipt is None:
        return {}
    met = {
        "preemptions": receipt.preemptions,
        "recomputed_tokens": receipt.recomputed_tokens,
        "swapped_pages": receipt.swapped_pages,
        "paused_s": round(receipt.paused_s, 4),
    }
    return {name: value for name, value in met.items() if value}


def _gap_s(call: Call) -> float | None:
    """Mean time between output tokens; None for fewer than two."""
    first_s, last_s = call.times.first_token_s, call.times.last_token_s
    if first_s is None or last_s is None or call.output_tokens < 2:
        return None
    return (last_s - first_s) / (call.output_tokens - 1)


def _rounded(length_s: float | None) -> float | None:
    return None if length_s is None else round(length_s, 4)
