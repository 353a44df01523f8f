"""Errors of a handler become the statuses of its call."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import grpc.aio
import structlog

from service.errors import CODES, Internal, ServiceError, trailer_of

log = structlog.get_logger()

Request = TypeVar("Request")
Response = TypeVar("Response")


@asynccontextmanager
async def statuses(context: grpc.aio.ServicerContext[Request, Response]) -> AsyncIterator[None]:
    """Around a whole handler. `abort` raises, so it stands outside of every `except`."""
    try:
        yield
        return
    except ServiceError as error:
        ended = error
    except grpc.aio.InternalError as error:  # a write to a caller that has left
        raise asyncio.CancelledError("the caller left") from error
    except Exception as error:
        log.error("handler_failed", exc_info=error)
        ended = as_ours(error)
    try:
        await context.abort(CODES[type(ended)], str(ended), trailer_of(ended))
    except grpc.aio.InternalError as error:  # nobody is left to tell
        raise asyncio.CancelledError("the caller left") from error


def as_ours(error: Exception) -> ServiceError:
    """What is no error of the service is an error of the server's own."""
    if isinstance(error, ServiceError):
        return error
    return Internal("an error of the server's own, see its log")
