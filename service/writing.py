"""Messages of a stream to a caller that may not read them."""

import asyncio

import grpc.aio

from protos.walkway.v1 import inference_pb2 as pb
from service.errors import Expired

LAST_WORDS_S = 1.0

Streaming = grpc.aio.ServicerContext[pb.GenerateRequest, pb.GenerateStreamResponse]


class Writer:
    """gRPC holds a message back once its buffers are full of what the caller did not read,
    for as long as the connection lives; the call's own time ends that. `expire_by_s` is of
    the monotonic clock, as is the event loop's."""

    def __init__(self, context: Streaming, expire_by_s: float | None) -> None:
        self._context = context
        self._expire_by_s = expire_by_s
        self.stuck = False
        self.begun = False

    async def write(self, message: pb.GenerateStreamResponse) -> None:
        """Raises Expired when that takes past the call's time, and longer than
        `LAST_WORDS_S`; then nothing more can be written, a status comes when the caller reads
        on. A caller that leaves meanwhile cancels this, as it does at any other moment."""
        try:
            await self._begin()
            async with asyncio.timeout_at(self._until_s()):
                await self._context.write(message)
        except TimeoutError:
            self.stuck = True
            raise Expired("the caller did not read what it was sent") from None
        except grpc.aio.InternalError as error:  # what gRPC says when the call is gone
            raise asyncio.CancelledError("the caller left") from error

    async def _begin(self) -> None:
        """Metadata that travel with a first message that is stuck count as not sent: gRPC
        then fails to send the status that should follow."""
        if not self.begun:
            self.begun = True
            await self._context.send_initial_metadata(())

    def _until_s(self) -> float | None:
        if self._expire_by_s is None:
            return None
        return max(self._expire_by_s, asyncio.get_running_loop().time() + LAST_WORDS_S)
