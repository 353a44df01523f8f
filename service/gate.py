"""Stands before every method of a listener: refuses a call that is one too many before its
message is read, and one whose message is too long or cannot be decoded.

gRPC would answer the last by itself, with an internal text, no details and no log line.
"""

import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, TypeAlias

import grpc
import grpc.aio

from service.errors import Overloaded, ServiceError
from service.health import HEALTH
from service.reading import Context, MessageBounds, Reading, decoder
from service.records import Records

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Found: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
Behaviour = Callable[[Any, Context], Any]
Glance = Callable[[], object]

LEAST_RETRY_S = 1.0


class Gate(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """`max_calls` limits the open calls of each service, so that a busy service leaves room
    for the others; of health it limits each method, so that open Watches leave room for the
    Checks of a probe. `glances` are checks by method that need no message; each raises
    ServiceError. Methods with such a check log their own refusals. `retry_after_s` tells when
    the queue has places again."""

    def __init__(
        self,
        max_calls: int,
        bounds: MessageBounds,
        glances: Mapping[str, Glance],
        retry_after_s: Callable[[], float],
        records: Records,
    ) -> None:
        self._max_calls = max_calls
        self._bounds = bounds
        self._glances = glances
        self._retry_after_s = retry_after_s
        self._records = records
        self._open: Counter[str] = Counter()
        self._made: dict[str, tuple[Handler, Handler]] = {}

    async def intercept_service(  # type: ignore[override]
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Found]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Found:
        """The method's handler, behind this gate; None for a method that there is not."""
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if handler is None:
            return None
        made_of, made = self._made.get(method, (None, None))
        if made is None or made_of is not handler:
            made = self._behind(method, handler)
            self._made[method] = handler, made
        return made

    def _behind(self, method: str, handler: Any) -> Handler:
        """A handler of two kinds: gRPC takes it for one of a stream of messages, which is not
        read before it begins; an interceptor that wraps methods of one message finds one."""
        before, after = _kind(handler).split("_")
        decode = decoder(method, handler.request_deserializer, self._bounds.max_bytes)
        kinds = {f"{before}_{after}": self._entry(method, handler, reads=False)}
        if not handler.request_streaming:
            kinds[f"stream_{after}"] = self._entry(method, handler, reads=True)
        made: Handler = handler._replace(
            request_streaming=True, request_deserializer=decode, **kinds
        )
        return made

    def _entry(self, method: str, handler: Any, reads: bool) -> Behaviour:
        """What the handler does, for calls whose message is given or is to be read."""
        behave: Behaviour = getattr(handler, _kind(handler))
        noted = method not in self._glances and not handler.request_streaming

        async def enter(given: Any, context: Context) -> object:
            reading = Reading(method, context, self._records)
            why = self._one_too_many(method) or self._at_a_glance(method)
            if why is not None:
                await reading.refuse(why)
            if handler.request_streaming:
                return reading.all(given)
            if reads:
                return await reading.one(self._bounds.max_read_s)
            return await reading.checked(given)

        async def returns(given: object, context: Context) -> object:
            with self._counted(method):
                answer = behave(await enter(given, context), context)
                with self._noted(method, noted, context):
                    return await answer

        async def yields(given: object, context: Context) -> AsyncIterator[object]:
            with self._counted(method):
                answer = behave(await enter(given, context), context)
                with self._noted(method, noted, context):
                    async with aclosing(answer) as messages:
                        async for message in messages:
                            yield message

        # A stream that writes its messages itself is one that returns.
        return yields if inspect.isasyncgenfunction(behave) else returns

    def _one_too_many(self, method: str) -> ServiceError | None:
        if self._open[_counted_as(method)] <= self._max_calls:
            return None
        why = f"{self._max_calls} calls are open, the limit"
        return Overloaded(why, max(LEAST_RETRY_S, self._retry_after_s()))

    def _at_a_glance(self, method: str) -> ServiceError | None:
        try:
            self._glances.get(method, lambda: None)()
        except ServiceError as error:
            return error
        return None

    @contextmanager
    def _counted(self, method: str) -> Iterator[None]:
        counted = _counted_as(method)
        self._open[counted] += 1
        try:
            yield
        finally:
            self._open[counted] -= 1

    @contextmanager
    def _noted(self, method: str, noted: bool, context: Context) -> Iterator[None]:
        """Write down what a method refuses that does not do so itself."""
        try:
            yield
        finally:
            code = context.code()
            if noted and code and code is not grpc.StatusCode.OK:
                self._records.failed(method, code.name, context.details())


def _kind(handler: Handler) -> str:
    kinds = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
    return next(kind for kind in kinds if getattr(handler, kind))


def _counted_as(method: str) -> str:
    service = method.rpartition("/")[0]
    return method if service == f"/{HEALTH}" else service
