"""Messages of a stream to a caller that may not read them."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

import grpc.aio

from protos.walkway.v1 import inference_pb2 as pb
from service.errors import Expired, ServiceError
from service.statuses import abort

LAST_WORDS_S = 1.0

Streaming = grpc.aio.ServicerContext[pb.GenerateRequest, pb.GenerateStreamResponse]


class Delivery:
    """Watches a message while gRPC has it: `with delivery:` around the handler's `yield`.

    gRPC holds a message back once its buffers are full of what the caller did not read, for
    as long as the connection lives, and the handler does not run meanwhile. So a timer ends
    the call when that takes past the call's time (`expire_by_s`, of the monotonic clock, as is
    the event loop's) and longer than `LAST_WORDS_S`: `end` is called with the error, and the
    status comes when the caller reads on. From then on `stuck` is true, and the handler has
    to return when it runs again.
    """

    def __init__(
        self,
        context: Streaming,
        expire_by_s: float | None,
        end: Callable[[ServiceError], None],
    ) -> None:
        self.stuck = False
        self._context = context
        self._expire_by_s = expire_by_s
        self._end = end
        self._begun = False
        self._timer: asyncio.TimerHandle | None = None
        self._last_words: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Before the first message. Metadata that travel with a first message that is stuck
        count as not sent: gRPC then fails to send the status that should follow."""
        if not self._begun:
            self._begun = True
            with suppress(grpc.aio.UsageError):  # an interceptor has sent its own
                await self._context.send_initial_metadata(())

    def __enter__(self) -> None:
        if self._expire_by_s is not None:
            loop = asyncio.get_running_loop()
            until_s = max(self._expire_by_s, loop.time() + LAST_WORDS_S)
            self._timer = loop.call_at(until_s, self._give_up)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self.stuck = True
        error = Expired("the caller did not read what it was sent")
        self._end(error)
        self._last_words = asyncio.create_task(self._say(error))

    async def _say(self, error: ServiceError) -> None:
        with suppress(grpc.aio.AbortError, asyncio.CancelledError):
            await abort(self._context, error)
