"""How requests ended, how long they were, and where their time went."""

from dataclasses import dataclass

from service.errors import CODES
from service.messages import Finish
from service.metrics.families import LONG_S, SHORT_S, TOKENS, Families, by_label

OTHER_FINISHES = ("unavailable", "unread", "too_large")
"""What no engine says: it died or the server shut down, the caller did not read, the answer
exceeds the largest message."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that was taken and is over. Seconds from arrival, None for what it never
    reached: its first step, first token, last token. `paused_s` is None when it was never
    preempted."""

    finish: str
    prompt_tokens: int
    output_tokens: int
    dropped_tokens: int
    queue_s: float | None
    first_token_s: float | None
    last_token_s: float | None
    total_s: float
    paused_s: float | None

    @property
    def prefill_s(self) -> float | None:
        """From the first step to the first token."""
        return _between(self.queue_s, self.first_token_s)

    @property
    def decode_s(self) -> float | None:
        """From the first token to the last."""
        return _between(self.first_token_s, self.last_token_s)

    @property
    def gap_s(self) -> float | None:
        """Mean time between output tokens; None for fewer than two."""
        if self.decode_s is None or self.output_tokens < 2:
            return None
        return self.decode_s / (self.output_tokens - 1)


class RequestMetrics:
    """Fed once for each request: `refused`, or `ended`."""

    def __init__(self, families: Families) -> None:
        counter, histogram = families.counter, families.histogram
        finishes = counter("requests_finished", "Requests taken, by their end.", "finish")
        self._finishes = by_label(finishes, (*(f.value for f in Finish), *OTHER_FINISHES))
        refusals = counter("requests_refused", "Requests not taken, by code.", "code")
        self._refusals = by_label(refusals, sorted({c.name for c in CODES.values()}))
        self._dropped = counter("dropped_tokens", "Tokens generated past a stop string.")
        self._queue = histogram("queue", "From arrival to the first step.", LONG_S)
        self._ttft = histogram("time_to_first_token", "From arrival.", LONG_S)
        self._prefill = histogram("prefill", "From the first step to the first token.", LONG_S)
        self._decode = histogram("decode", "From the first token to the last.", LONG_S)
        self._tpot = histogram("time_per_output_token", "Mean gap, per request.", SHORT_S)
        self._total = histogram("request", "From arrival to the end.", LONG_S)
        self._pause = histogram("pause", "All a request's time preempted, if any.", LONG_S)
        self._prompt = histogram(
            "request_prompt",
            "Prompt tokens of a request, cached ones too.",
            TOKENS,
            unit="tokens",
        )
        self._output = histogram(
            "request_output", "Tokens answered to a request.", TOKENS, unit="tokens"
        )

    def refused(self, code: str) -> None:
        """A request was not taken."""
        self._refusals[code].inc()

    def ended(self, ended: Ended) -> None:
        """An accepted request ended, for any reason."""
        self._finishes[ended.finish].inc()
        self._dropped.inc(ended.dropped_tokens)
        self._prompt.observe(ended.prompt_tokens)
        self._output.observe(ended.output_tokens)
        for histogram, length_s in (
            (self._queue, ended.queue_s),
            (self._ttft, ended.first_token_s),
            (self._prefill, ended.prefill_s),
            (self._decode, ended.decode_s),
            (self._tpot, ended.gap_s),
            (self._total, ended.total_s),
            (self._pause, ended.paused_s),
        ):
            if length_s is not None:
                histogram.observe(length_s)


def _between(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else max(0.0, end_s - start_s)
