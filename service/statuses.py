"""Errors of a handler become the statuses of its call."""

import asyncio
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Generic, NoReturn, TypeVar

import grpc.aio
import structlog

from service.errors import CODES, Internal, ServiceError, trailer_of

log = structlog.get_logger()

Request = TypeVar("Request")
Response = TypeVar("Response")


def statuses(
    context: grpc.aio.ServicerContext[Request, Response],
) -> AbstractAsyncContextManager[None, bool | None]:
    """Around a whole handler. `abort` raises, so it stands outside of every `except`."""
    return _Statuses(context)


async def abort(
    context: grpc.aio.ServicerContext[Request, Response], error: ServiceError
) -> NoReturn:
    """End a call with the status of an error. Raises AbortError, which the handler passes on,
    or CancelledError when the caller has left."""
    try:
        await context.abort(CODES[type(error)], str(error), trailer_of(error))
    except grpc.aio.AbortError as aborted:
        _release_frames(aborted)
        raise
    except grpc.aio.InternalError as gone:
        raise asyncio.CancelledError("the caller left") from gone


def as_ours(error: Exception) -> ServiceError:
    """What is no error of the service is an error of the server's own."""
    if isinstance(error, ServiceError):
        return error
    return Internal("an error of the server's own, see its log")


class _Statuses(Generic[Request, Response]):
    def __init__(self, context: grpc.aio.ServicerContext[Request, Response]) -> None:
        self._context = context

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if not isinstance(error, Exception):
            return None
        _release_frames(error)
        if isinstance(error, grpc.aio.AbortError):
            return None
        if isinstance(error, grpc.aio.InternalError):  # a write to a caller that has left
            raise asyncio.CancelledError("the caller left") from error
        if not isinstance(error, ServiceError):
            log.error("handler_failed", exc_info=error)
        await abort(self._context, as_ours(error))
        return None


def _release_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error and of its causes once the handler is done.

    An error refers to the frames that it passed through, and these to the request. gRPC keeps
    the error of an abort with the call, which the same frames refer to: without this only a
    full garbage collection would free a refused request.
    """

    def release(_: asyncio.Task[object]) -> None:
        chain: list[BaseException | None] = [error]
        while chain:
            if (link := chain.pop()) is not None:
                chain += (link.__cause__, link.__context__)
                link.__traceback__ = link.__cause__ = link.__context__ = None

    task = asyncio.current_task()
    assert task is not None, "handlers run in tasks"
    task.add_done_callback(release)
