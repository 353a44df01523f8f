"""Writes down how requests ended: one log line and the metrics of each, none per token. Of
refusals not every line is written when there are many."""

import structlog

from service.call import Call
from service.errors import CODES, Overloaded, ServiceError
from service.field_rules import MAX_NAME_BYTES
from service.messages import Receipt
from service.metrics.requests import Ended, RequestMetrics
from service.sparing import SparingLog

log = structlog.get_logger()


class Records:
    """For requests that were taken (`ended`) and for those that were not (`refused`)."""

    def __init__(self, metrics: RequestMetrics) -> None:
        self._metrics = metrics
        self._refusals = SparingLog()

    def refused(self, request_id: str, tenant: str, error: ServiceError) -> None:
        """A request was turned away; its names may be what was wrong with it."""
        code = CODES[type(error)].name
        self._metrics.refused(code)
        self._refusals.info(
            "request_refused",
            code,
            code=code,
            reason=str(error),
            request_id=request_id[:MAX_NAME_BYTES],
            tenant=tenant[:MAX_NAME_BYTES],
        )

    def unread(self, method: str, error: ServiceError) -> None:
        """A call was turned away before there was a request."""
        code = CODES[type(error)].name
        self._metrics.refused(code)
        self._refusals.info("call_refused", code, code=code, reason=str(error), method=method)

    def failed(self, method: str, code: str, reason: str) -> None:
        """A call ended with an error that nothing else wrote down."""
        self._refusals.info("call_failed", code, code=code, reason=reason, method=method)

    def ended(self, call: Call) -> None:
        """A request is over, in whatever way."""
        receipt, ended = call.receipt, _ended(call)
        self._metrics.ended(ended)
        if isinstance(call.error, Overloaded):
            self._metrics.refused(CODES[Overloaded].name)
        log.info(
            "request_ended",
            id=call.submit.id,
            request_id=call.request_id,
            tenant=call.submit.tenant,
            prompt_tokens=ended.prompt_tokens,
            cached_tokens=receipt.cached_tokens if receipt else None,
            output_tokens=ended.output_tokens,
            finish=ended.finish,
            queue_s=_rounded(ended.queue_s),
            ttft_s=_rounded(ended.first_token_s),
            total_s=_rounded(ended.total_s),
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
        "share_tokens": receipt.share_tokens,
    }
    return {name: value for name, value in met.items() if value}


def _ended(call: Call) -> Ended:
    receipt, times = call.receipt, call.times
    return Ended(
        finish=call.ending,
        prompt_tokens=len(call.submit.prompt),
        output_tokens=call.output_tokens,
        dropped_tokens=call.dropped_tokens,
        queue_s=call.queue_s,
        first_token_s=times.after_arrival(times.first_token_s),
        last_token_s=times.after_arrival(times.last_token_s),
        total_s=times.after_arrival(times.end_s) or 0.0,
        paused_s=receipt.paused_s if receipt and receipt.preemptions else None,
    )


def _rounded(length_s: float | None) -> float | None:
    return None if length_s is None else round(length_s, 4)
