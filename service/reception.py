"""Takes requests in: judges, tokenises, finds them a place, and hands them to the engine.
Everything that can be refused is refused here, before anything was sent."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from protos.walkway.v1 import inference_pb2 as pb
from service.admission import Admission, Place
from service.call import Call
from service.errors import ServiceError, Unavailable
from service.messages import Ready
from service.prompts import prompt_bytes, prompt_tokens
from service.requests import Arrival, Judged, judge, with_end_tokens
from service.streams import Streams
from service.text import TextStream
from service.tokenising import Tokenising

START_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Grants:
    """What a call may take; seconds, None for no limit."""

    request_timeout_s: float | None
    queue_timeout_s: float | None


class Reception:
    """An engine that dies while a prompt is tokenised refuses when it is submitted to it."""

    def __init__(
        self,
        streams: Streams,
        admission: Admission,
        grants: Grants,
        clock: Callable[[], float],
    ) -> None:
        self.streams = streams
        self.admission = admission
        self._grants = grants
        self._clock = clock
        self._ids = itertools.count(1)
        self._ready: Ready | None = None
        self._tokenising: Tokenising | None = None
        self._queries: Tokenising | None = None
        self._retry_after_s: Callable[[], float] | None = None

    def learn(self, ready: Ready, tokenising: Tokenising, queries: Tokenising) -> None:
        """An engine serves, and this is how its texts become tokens: those of requests, and
        those that are only asked about."""
        self._ready = with_end_tokens(ready, tokenising.tokenizer.eos_ids)
        self._tokenising = tokenising
        self._queries = queries
        self._retry_after_s = None

    def rename_scheduler(self, name: str) -> None:
        """Another strategy plans from now on."""
        if self._ready is not None:
            self._ready = msgspec.structs.replace(self._ready, scheduler=name)

    def lose(self, retry_after_s: Callable[[], float]) -> None:
        """No engine serves, until the next is learnt of."""
        self._retry_after_s = retry_after_s

    def model(self) -> tuple[Ready, Tokenising]:
        """What is served. Raises Unavailable while no engine serves and while the server
        drains."""
        self.streams.check_open()
        return self.served()

    def served(self) -> tuple[Ready, Tokenising]:
        """As `model`, also while the server drains."""
        if self._ready is None or self._tokenising is None:
            raise Unavailable("the engine is starting", START_RETRY_S)
        if self._retry_after_s is not None:
            raise Unavailable("the engine is down", self._retry_after_s())
        return self._ready, self._tokenising

    def queried(self) -> tuple[Ready, Tokenising]:
        """As `model`, for what is only asked about."""
        ready, _ = self.model()
        assert self._queries, "both are learnt of at once"
        return ready, self._queries

    def arrive(self, remaining_s: float | None) -> Arrival:
        """A call came; `remaining_s` is what its own deadline leaves."""
        now_s = self._clock()
        return Arrival(
            at_s=now_s,
            call_expires_s=None if remaining_s is None else now_s + remaining_s,
            request_timeout_s=self._grants.request_timeout_s,
            queue_timeout_s=self._grants.queue_timeout_s,
        )

    def why_over(self, arrival: Arrival) -> ServiceError:
        """Why a call is over that was cancelled in `take`."""
        return arrival.why_over(self._clock())

    def glance(self) -> None:
        """What can be refused before a request was read. Raises ServiceError."""
        self.model()
        self.admission.check()

    async def take(
        self, request: pb.GenerateRequest, arrival: Arrival, tenant_header: str
    ) -> Call:
        """A call that the engine was told of: from here on it must be closed. Raises
        ServiceError for what is refused."""
        ready, tokenising = self.model()
        judged = judge(request, ready, tenant_header)
        place = self.admission.enter(prompt_bytes(request))
        try:
            prompt = await arrival.in_time(prompt_tokens(request, ready, tokenising))
            return self._submit(judged, prompt, arrival, place, tokenising)
        except BaseException:
            place.leave()
            raise

    def _submit(
        self,
        judged: Judged,
        prompt: list[int],
        arrival: Arrival,
        place: Place,
        tokenising: Tokenising,
    ) -> Call:
        submit = judged.fit(next(self._ids), prompt, arrival)
        place.weigh(len(prompt))
        answering = judged.answering
        text = TextStream(
            tokenising.tokenizer,
            answering.stop_strings,
            include_stop=answering.include_stop,
            skip_special_tokens=answering.skip_special_tokens,
            wants_text=answering.text,
        )
        stream = self.streams.submit(submit, judged.request_id, place.leave)
        return Call(submit, answering, stream, self.streams, text, self._clock)
