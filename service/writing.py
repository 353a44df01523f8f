"""Messages of a stream to a caller that may not read them."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import grpc.aio

from protos.walkway.v1 import inference_pb2 as pb
from service.call import Call
from service.errors import Expired, ServiceError
from service.statuses import abort

LAST_WORDS_S = 1.0

Streaming = grpc.aio.ServicerContext[pb.GenerateRequest, pb.GenerateStreamResponse]


class Delivery:
    """Watches the messages of a stream while gRPC has them: `with` it around all of them, and
    between `begin` and `sent` the handler yields one.

    gRPC holds a message back once its buffers are full of what the caller did not read, for
    as long as the connection lives, and the handler does not run meanwhile. So a timer ends
    the call when that takes past the call's time and longer than `LAST_WORDS_S`, and the
    stream does when too much is unread: `end` is called with the error, and the status comes
    when the caller reads on.
    """

    def __init__(
        self, context: Streaming, call: Call, end: Callable[[ServiceError], None]
    ) -> None:
        self._context = context
        self._stream = call.stream
        self._expire_by_s = call.submit.limits.expire_by_s
        self._end = end
        self._begun = False
        self._timer: asyncio.TimerHandle | None = None
        self._last_words: asyncio.Task[BaseException] | None = None

    def __enter__(self) -> Self:
        if self._expire_by_s is not None:  # of the monotonic clock, as is the event loop's
            self._look_at(self._expire_by_s)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.sent()
        if self._timer is not None:
            self._timer.cancel()

    async def begin(self, message: pb.GenerateStreamResponse) -> None:
        """Before each message. Metadata that travel with a first message that is stuck count
        as not sent: gRPC then fails to send the status that should follow."""
        if not self._begun:
            self._begun = True
            with suppress(grpc.aio.UsageError):  # an interceptor has sent its own
                await self._context.send_initial_metadata(())
        self._stream.sending(message.ByteSize(), self._give_up)

    async def sent(self) -> None:
        """After each message. Raises what ended a call that was given up meanwhile, once its
        status was said: a handler that ends before would end it well."""
        self._stream.sent()
        if self._last_words is not None:
            raise await self._last_words

    def _look_at(self, moment_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(moment_s, self._look)

    def _look(self) -> None:
        """The call's time is over, and its handler may not know."""
        now_s = asyncio.get_running_loop().time()
        since_s = self._stream.sending_since_s
        if since_s is not None and now_s >= since_s + LAST_WORDS_S:
            self._give_up(Expired("the caller did not read what it was sent"))
        else:
            self._look_at((now_s if since_s is None else since_s) + LAST_WORDS_S)

    def _give_up(self, error: ServiceError) -> None:
        if self._last_words is None:
            self._end(error)
            self._last_words = asyncio.create_task(self._say(error))

    async def _say(self, error: ServiceError) -> BaseException:
        try:
            await abort(self._context, error)
        except (grpc.aio.AbortError, asyncio.CancelledError) as ended:
            return ended
