"""One request that was taken, from its submission to its end: what the engine says becomes
text, and the end becomes a finish, usage and timings."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from service.errors import (
    Cancelled,
    Expired,
    Internal,
    NotRead,
    Overloaded,
    ServiceError,
    TooLarge,
    Unavailable,
)
from service.messages import Finish, Pause, Receipt, RequestEvent, Submit
from service.requests import CLOCKS_DIFFER_S, Answering
from service.streams import Stream, Streams
from service.text import TextStream

COMPLETE = (Finish.STOP, Finish.LENGTH, Finish.MAX_TIME)
MAX_DETAIL = 500
SLICE_TOKENS = 64
"""What a call takes at a time: some milliseconds of work with 20 alternatives a token."""
ENDINGS: dict[type[ServiceError], str] = {
    Unavailable: "unavailable",
    NotRead: "unread",
    TooLarge: "too_large",
    Internal: Finish.FAILED.value,
}


@dataclass(frozen=True, slots=True)
class Resumption:
    """A request that gave way runs again, so many seconds from arrival."""

    at_s: float


@dataclass(slots=True)
class Part:
    """What is new of an answer. `scheduling` only when wanted."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: bytes | bytearray = b""  # packed
    prompt_logprobs: bytes | bytearray = b""
    scheduling: list[Pause | Resumption] = field(default_factory=list)

    def add(self, newer: "Part") -> None:
        """Append what came later."""
        self.text += newer.text
        self.tokens += newer.tokens
        self.logprobs += newer.logprobs
        self.prompt_logprobs += newer.prompt_logprobs
        self.scheduling += newer.scheduling

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens or self.prompt_logprobs or self.scheduling)


@dataclass(slots=True)
class Times:
    """Moments of a call, seconds of the monotonic clock."""

    arrival_s: float
    first_token_s: float | None = None
    last_token_s: float | None = None
    end_s: float | None = None

    def after_arrival(self, moment_s: float | None) -> float | None:
        """Seconds from arrival; None for what never happened."""
        return None if moment_s is None else moment_s - self.arrival_s


class Call:
    """`next` until it says None, then `error` has what ended it, if anything did; `close`,
    always.

    The word on stop strings is this side's: once one matched, the answer is complete,
    whatever the engine says later; only its receipt is still waited for.
    """

    def __init__(
        self,
        submit: Submit,
        answering: Answering,
        stream: Stream,
        streams: Streams,
        text: TextStream,
        clock: Callable[[], float],
    ) -> None:
        self.submit = submit
        self.answering = answering
        self.request_id = stream.request_id
        self.times = Times(submit.arrival_s)
        self.finish: Finish | None = None
        self.receipt: Receipt | None = None
        self.admitted = False
        self.output_tokens = 0
        self.last_token: int | None = None
        self._paused = False
        self.error: ServiceError | None = None
        self.closed = False
        self._has_rest = False
        self._detail = ""
        self.stream = stream
        self.streams = streams
        self._text = text
        self._clock = clock

    @property
    def stop_string(self) -> str | None:
        """The stop string that matched."""
        return self._text.matched

    @property
    def queue_s(self) -> float | None:
        """From arrival to the first step; None for what never reached one."""
        return self.receipt.queue_s if self.receipt and self.admitted else None

    @property
    def dropped_tokens(self) -> int:
        """Generated after the one that completed a stop string."""
        return self._text.dropped

    @property
    def stop_token(self) -> int | None:
        """The stop token that ended the answer."""
        ended = self.finish is Finish.STOP and self.stop_string is None
        return self.last_token if ended else None

    @property
    def ending(self) -> str:
        """How it ended, in a word, for log and metrics."""
        if (ending := ENDINGS.get(type(self.error or ServiceError()))) is not None:
            return ending
        if isinstance(self.error, Expired) and self.finish is not Finish.REFUSED:
            return Finish.EXPIRED.value
        if self.finish is None and self.error is None:
            return Finish.EXPIRED.value if self._expired else Finish.CANCELLED.value
        return self.finish.value if self.finish else Finish.FAILED.value

    @property
    def _expired(self) -> bool:
        """gRPC cancels a handler when the call's deadline passes, as it does when a client
        leaves."""
        until_s = self.submit.limits.expire_by_s
        return until_s is not None and (self.times.end_s or 0.0) > until_s - CLOCKS_DIFFER_S

    async def next(self) -> Part | None:
        """What is new, or None once it is over: the answer is complete, or `error` says why
        it is not."""
        while self.finish is None and self.error is None:
            if part := await self._piece():
                return part
        if self.stop_string is not None:
            await self._settle()
        self._end()
        if self.finish is not None and self.finish not in COMPLETE:
            self.error = self._failure(self.finish)
        return None

    async def at_hand(self) -> Part | None:
        """As `next`, of what is here already: None where `next` would wait."""
        while self.finish is None and self.error is None and self.stream.has_news:
            if part := await self._piece():
                return part
        return None

    def close(self) -> None:
        """The one clean-up for finish, error, cancellation and crash."""
        self.closed = True
        self._end()
        self.streams.cancel(self.stream, Finish.CANCELLED)

    async def _piece(self) -> Part:
        """What the next news bring, which may be nothing yet."""
        if self._has_rest:  # a large answer must not hold up the others
            await asyncio.sleep(0)
        try:
            news = await self.stream.take(SLICE_TOKENS)
        except ServiceError as error:
            self.error = error
            return Part()
        self._has_rest = self.stream.has_news
        return self._take(news)

    def _take(self, news: RequestEvent) -> Part:
        self.receipt = news.receipt or self.receipt
        self.admitted = self.admitted or news.admitted
        if news.tokens:
            self.times.last_token_s = self._clock()
            self.times.first_token_s = self.times.first_token_s or self.times.last_token_s
        stopped = news.finish is Finish.STOP
        delta = self._text.feed(news.tokens, news.logprobs, stopped)
        part = Part(delta.text, list(delta.tokens), delta.logprobs, news.prompt_logprobs)
        if self.answering.scheduling_events:
            part.scheduling = self._in_turn(news)
        if self.stop_string is not None:
            self.finish = Finish.STOP
            self.streams.end_early(self.stream, Finish.STOP)
        elif news.finish is not None:
            self.finish, self._detail = news.finish, news.detail
            tail = self._text.finish()
            part.add(Part(tail.text, list(tail.tokens), tail.logprobs))
        self.output_tokens += len(part.tokens)
        if part.tokens:
            self.last_token = part.tokens[-1]
        return part

    def _in_turn(self, news: RequestEvent) -> list[Pause | Resumption]:
        """What the scheduler did, in order: the two kinds take turns."""
        paused, resumed = iter(news.paused), map(Resumption, news.resumed_s)
        found: list[Pause | Resumption] = []
        for _ in range(len(news.paused) + len(news.resumed_s)):
            found.append(next(resumed) if self._paused else next(paused))
            self._paused = not self._paused
        return found

    async def _settle(self) -> None:
        """After a stop string: wait for the engine's receipt, which comes within a step. An
        engine that dies meanwhile does not spoil the answer."""
        try:
            while self.receipt is None and not self.stream.told_all:
                news = await self.stream.take(SLICE_TOKENS)
                self._text.feed(news.tokens)  # only counts them
                self.receipt = news.receipt
        except ServiceError:
            return

    def _end(self) -> None:
        self.times.end_s = self.times.end_s or self._clock()

    def _failure(self, finish: Finish) -> ServiceError:
        limits, arrival_s = self.submit.limits, self.submit.arrival_s
        detail = self._detail[:MAX_DETAIL]
        if finish is Finish.EXPIRED and limits.expire_by_s is not None:
            return Expired(f"not done after {limits.expire_by_s - arrival_s:.3f} s, the limit")
        if finish is Finish.QUEUE_TIMEOUT and limits.admit_by_s is not None:
            waited_s = limits.admit_by_s - arrival_s
            return Overloaded(f"not admitted after {waited_s:.3f} s, the limit", waited_s)
        if finish is Finish.REFUSED:
            return Expired(f"refused: {detail}")
        if finish is Finish.CANCELLED:
            return Cancelled("the request was cancelled")
        return Internal(f"the request failed: {detail}")
