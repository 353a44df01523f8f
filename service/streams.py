"""Open streams: what the engine said about each and its call has not taken yet.

`submit` and `cancel` are plain calls, so nothing can come between registering a stream and
queueing its request. All on one event loop.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from service.errors import DuplicateRequest, NotRead, ServiceError, Unavailable
from service.messages import End, Finish, RequestEvent, StepEvents, Submit
from service.supervisor import EngineDown
from service.time_limits import TimeLimits
from service.unread import Unread

Send = Callable[[Submit | End], None]

GiveUp = Callable[[ServiceError], None]
"""Ends a call whose handler cannot, because gRPC has a message of it."""

DRAIN_RETRY_S = 1.0
STALLED_S = 1.0
"""So long a message may be on its way before its reader counts as one that does not read."""


@dataclass(slots=True)
class Total:
    """Bytes of all streams together that were not read."""

    bytes: int = 0


class Stream:
    """The outbox of one call. News merge until they are taken, so a slow reader gets fewer
    and larger messages. What is not read counts towards the `total` of all streams."""

    def __init__(
        self, submit: Submit, request_id: str, leave_queue: Callable[[], None], total: Total
    ) -> None:
        self.id = submit.id
        self.request_id = request_id
        self.ended = False  # as far as the engine is concerned
        self.admitted = False
        self.told_all = False  # its end was taken
        self.unread_bytes = 0
        self._leave_queue = leave_queue
        self._total = total
        self._news = Unread()
        self._message_bytes = 0  # of the message that gRPC has
        self.sending_since_s: float | None = None
        self._give_up: GiveUp | None = None
        self._error: ServiceError | None = None
        self._wake = asyncio.Event()

    @property
    def has_news(self) -> bool:
        """`take` would not wait."""
        return self._wake.is_set()

    @property
    def stalled(self) -> bool:
        """Its caller does not read."""
        since_s = self.sending_since_s
        return since_s is not None and asyncio.get_running_loop().time() - since_s > STALLED_S

    def leave_queue(self) -> None:
        """It waits no longer."""
        self._leave_queue()

    def push(self, event: RequestEvent) -> None:
        """News from the engine."""
        if event.admitted or event.finish:
            self.leave_queue()
        self.admitted = self.admitted or event.admitted
        self.ended = self.ended or event.finish is not None
        self._news.add(event)
        self._count()
        self._wake.set()

    def fail(self, error: ServiceError) -> None:
        """End the stream with an error, after what it already has."""
        self._error = error
        self._wake.set()

    async def take(self, tokens: int) -> RequestEvent:
        """The next news, of at most `tokens` tokens; waits for some. Raises what ended the
        stream."""
        await self._wake.wait()
        if not self._news:
            assert self._error is not None, "a stream wakes with news or an error"
            raise self._error
        news = self._news.take(tokens)
        self._count()
        self.told_all = self.told_all or news.finish is not None
        if not self._news and self._error is None:
            self._wake.clear()
        return news

    def sending(self, message_bytes: int, give_up: GiveUp) -> None:
        """gRPC has a message, until `sent`; `give_up` ends the call meanwhile."""
        self.sending_since_s = asyncio.get_running_loop().time()
        self._message_bytes, self._give_up = message_bytes, give_up
        self._count()

    def sent(self) -> None:
        """gRPC has taken the message; that may be told again."""
        self.sending_since_s = self._give_up = None
        self._message_bytes = 0
        self._count()

    def shed(self, error: ServiceError) -> None:
        """End the call of a stream that is stalled."""
        if self._give_up is not None:
            self._give_up(error)

    def close(self) -> None:
        """Nothing of it is taken any more."""
        self._news.drop()
        self.sent()

    def _count(self) -> None:
        unread = self._news.bytes + self._message_bytes
        self._total.bytes += unread - self.unread_bytes
        self.unread_bytes = unread


class Streams:
    """All open streams, by the engine's id and by the caller's. `max_unread_bytes` bounds what
    all of them keep: beyond it those that do not read end, the largest first."""

    def __init__(self, send: Send, max_unread_bytes: int) -> None:
        self._send = send
        self._max_unread_bytes = max_unread_bytes
        self._unread = Total()
        self._open: dict[int, Stream] = {}
        self._limits = TimeLimits(self._open.keys(), self._out_of_time)
        self._names: set[str] = set()
        self.draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def unread_bytes(self) -> int:
        """What all of them keep."""
        return self._unread.bytes

    def request_id_of(self, id: int) -> str:
        """The caller's name for the engine's request; empty once its stream is over."""
        stream = self._open.get(id)
        return stream.request_id if stream else ""

    def drain(self) -> None:
        """Take no new requests from now on."""
        self.draining = True

    def check_open(self) -> None:
        """Raises Unavailable while the server drains."""
        if self.draining:
            raise Unavailable("the server is shutting down", DRAIN_RETRY_S)

    def submit(
        self, submit: Submit, request_id: str, leave_queue: Callable[[], None]
    ) -> Stream:
        """Register a stream and queue its request. `leave_queue` is called when it waits no
        longer, maybe again. Raises DuplicateRequest and Unavailable, and registers nothing."""
        self.check_open()
        if request_id in self._names:
            raise DuplicateRequest(f"a request with id {request_id!r} is open")
        try:
            self._send(submit)
        except EngineDown as down:
            raise Unavailable(str(down), down.retry_after_s) from down
        stream = Stream(submit, request_id, leave_queue, self._unread)
        self._open[stream.id] = stream
        self._names.add(request_id)
        self._idle.clear()
        self._limits.watch(stream.id, submit.limits)
        return stream

    def cancel(self, stream: Stream, reason: Finish) -> None:
        """The call is over. The engine is told unless it knows. Again is a no-op."""
        if self._open.pop(stream.id, None) is None:
            return
        self._names.discard(stream.request_id)
        stream.leave_queue()
        stream.close()
        if not self._open:
            self._idle.set()
        if not stream.ended:
            self._send(End(stream.id, reason))

    def end_early(self, stream: Stream, reason: Finish) -> None:
        """Tell the engine to end a request whose last news its call still waits for."""
        if not stream.ended:
            self._send(End(stream.id, reason))

    def _out_of_time(self, id: int, reason: Finish) -> None:
        """A limit has passed and the engine has not said so: end the stream as it would. What
        it says later still counts, for a call that has not taken its end yet."""
        stream = self._open.get(id)
        if stream is None or stream.ended:
            return
        if reason is Finish.QUEUE_TIMEOUT and stream.admitted:
            return
        self.end_early(stream, reason)
        stream.push(RequestEvent(id, finish=reason))

    def deliver(self, events: StepEvents) -> None:
        """A step's news; those of calls that are over are dropped."""
        for event in events.events:
            stream = self._open.get(event.id)
            if stream is not None:
                stream.push(event)
        if self._unread.bytes > self._max_unread_bytes:
            self._shed()

    def fail_all(self, error: ServiceError) -> None:
        """End every open stream."""
        for stream in self._open.values():
            stream.fail(error)

    def _shed(self) -> None:
        """End streams that are stalled until the others fit. A caller that reads is not ended:
        what it has not read is on its way."""
        stalled = [stream for stream in self._open.values() if stream.stalled]
        for stream in sorted(stalled, key=lambda stream: -stream.unread_bytes):
            if self._unread.bytes <= self._max_unread_bytes:
                return
            stream.shed(
                NotRead(
                    f"{stream.unread_bytes} bytes of the answer wait to be read, and all that "
                    f"wait exceed {self._max_unread_bytes}, the limit of "
                    "server.max_unread_bytes"
                )
            )

    async def idle(self) -> None:
        """Until no stream is open."""
        await self._idle.wait()
