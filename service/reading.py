"""Reads the messages of a call, and ends the call with a status of ours where that fails."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import grpc.aio
from google.protobuf.message import DecodeError

from service.errors import (
    Cancelled,
    Expired,
    InvalidArgument,
    ServiceError,
    TooLarge,
    Violation,
)
from service.records import Records
from service.statuses import abort

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

END = grpc.aio.EOF  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class MessageBounds:
    """Of one message: its size, and how long it may take to arrive (None: no limit)."""

    max_bytes: int
    max_read_s: float | None


def decoder(
    method: str, decode: Callable[[bytes], object], max_bytes: int
) -> Callable[[bytes], object]:
    """Decodes messages of `method`; what is none becomes an error, which is not raised: gRPC
    would answer it."""

    def read(raw: bytes) -> object:
        if len(raw) > max_bytes:
            return TooLarge(f"the message has {len(raw)} bytes, the limit is {max_bytes}")
        try:
            return decode(raw)
        except DecodeError:
            return _invalid(f"has {len(raw)} bytes that are no message of {method}")

    return read


@dataclass(frozen=True, slots=True)
class Reading:
    """The messages of one call of `method`, as a `decoder` made them."""

    method: str
    context: Context
    records: Records

    async def one(self, max_read_s: float | None) -> object:
        """The message of a call that has one, which was not read yet."""
        try:
            async with asyncio.timeout(max_read_s):
                message = await self.context.read()
        except TimeoutError:
            await self.refuse(Expired(f"no message came within {max_read_s} s, the limit"))
        return await (self._refuse_nothing() if message is END else self.checked(message))

    async def all(self, messages: AsyncIterator[object]) -> AsyncIterator[object]:
        """The messages of a call that has several."""
        async for message in messages:
            yield await self.checked(message)

    async def checked(self, message: object) -> object:
        """The message, if it is one."""
        if isinstance(message, ServiceError):
            await self.refuse(message)
        return message

    async def refuse(self, why: ServiceError) -> NoReturn:
        """End the call with a status and a log line."""
        self.records.unread(self.method, why)
        await abort(self.context, why)

    async def _refuse_nothing(self) -> NoReturn:
        """There was no message, or the call is over. Then gRPC does not say whether the caller
        left or gRPC itself refused a message, as one that is too long even to be read."""
        why: ServiceError = _invalid("is missing")
        try:
            await abort(self.context, why)
        except asyncio.CancelledError:
            why = Cancelled("the call was over before its message had come, or was too long")
            raise
        finally:
            self.records.unread(self.method, why)


def _invalid(description: str) -> InvalidArgument:
    return InvalidArgument([Violation("message", description)])
