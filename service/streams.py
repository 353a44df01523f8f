"""Open streams: what the engine said about each and its call has not taken yet.

`submit` and `cancel` are plain calls, so nothing can come between registering a stream and
queueing its request. All on one event loop.
"""

import asyncio
from collections.abc import Callable

from service.errors import DuplicateRequest, Internal, ServiceError, Unavailable
from service.messages import End, Finish, RequestEvent, StepEvents, Submit
from service.outbox import merge_events
from service.supervisor import EngineDown
from service.time_limits import TimeLimits

Send = Callable[[Submit | End], None]

DRAIN_RETRY_S = 1.0


class Stream:
    """The outbox of one call. News merge until they are taken, so a slow reader gets fewer
    and larger messages; what is kept is bounded by what the request may generate."""

    def __init__(
        self, submit: Submit, request_id: str, leave_queue: Callable[[], None]
    ) -> None:
        self.id = submit.id
        self.request_id = request_id
        self.ended = False  # as far as the engine is concerned
        self.admitted = False
        self.told_all = False  # its end was taken
        self._leave_queue = leave_queue
        self._news: RequestEvent | None = None
        self._error: ServiceError | None = None
        self._wake = asyncio.Event()

    def leave_queue(self) -> None:
        """It waits no longer."""
        self._leave_queue()

    def push(self, event: RequestEvent) -> None:
        """News from the engine."""
        if event.admitted or event.finish:
            self.leave_queue()
        self.admitted = self.admitted or event.admitted
        self.ended = self.ended or event.finish is not None
        self._news = merge_events(self._news, event) if self._news else event
        self._wake.set()

    def fail(self, error: ServiceError) -> None:
        """End the stream with an error, after what it already has."""
        self._error = error
        self._wake.set()

    async def take(self) -> RequestEvent:
        """All news since the last call; waits for some. Raises what ended the stream."""
        await self._wake.wait()
        if (news := self._news) is not None:
            self._news = None
            self.told_all = self.told_all or news.finish is not None
            if self._error is None:
                self._wake.clear()
            return news
        if self._error is None:
            raise Internal("the stream woke without news")
        raise self._error


class Streams:
    """All open streams, by the engine's id and by the caller's."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._open: dict[int, Stream] = {}
        self._limits = TimeLimits(self._open.keys(), self._out_of_time)
        self._names: set[str] = set()
        self.draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._open)

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
        stream = Stream(submit, request_id, leave_queue)
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

    def fail_all(self, error: ServiceError) -> None:
        """End every open stream."""
        for stream in self._open.values():
            stream.fail(error)

    async def idle(self) -> None:
        """Until no stream is open."""
        await self._idle.wait()
