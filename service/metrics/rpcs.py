"""Rate, errors and duration of every method, on every gRPC port: an interceptor."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from types import TracebackType
from typing import Any, TypeAlias

import grpc
import grpc.aio

from service.metrics.families import LONG_S, Families, by_label
from service.requests import CLOCKS_DIFFER_S

UNKNOWN = "unknown"
"""One value for all methods that there are not: their names are the callers'."""

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Behaviour = Callable[..., Any]
Context = grpc.aio.ServicerContext[Any, Any]


class RpcMetrics:
    """By method, as `package.Service/Method`; health and reflection too, since a probe that
    takes long says more than a log line that is missing."""

    def __init__(self, families: Families, methods: Sequence[str]) -> None:
        methods = (*methods, UNKNOWN)
        started = families.counter("rpc_started", "Calls that came in.", "method")
        finished = families.counter("rpc_finished", "Calls that ended.", "method", "code")
        open_ = families.gauge("rpc_open", "Calls that are open, streams too.", "method")
        seconds = families.histogram(
            "rpc", "Of a call, to the end of its stream.", LONG_S, "method"
        )
        self._started = by_label(started, methods)
        self._open = by_label(open_, methods)
        self._seconds = by_label(seconds, methods)
        self._finished = {
            (method, code): finished.labels(method, code.name)
            for method in methods
            for code in grpc.StatusCode
        }

    def began(self, method: str) -> None:
        """A call came in."""
        self._started[method].inc()
        self._open[method].inc()

    def ended(self, method: str, code: grpc.StatusCode, length_s: float) -> None:
        """It ended."""
        self._open[method].dec()
        self._finished[method, code].inc()
        self._seconds[method].observe(length_s)


class _Watch:
    """Around a handler, from its first line to its last."""

    __slots__ = ("_began_s", "_context", "_method", "_metrics")

    def __init__(self, metrics: RpcMetrics, method: str, context: Context) -> None:
        self._metrics, self._method, self._context = metrics, method, context

    def __enter__(self) -> None:
        self._metrics.began(self._method)
        self._began_s = time.monotonic()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        length_s = time.monotonic() - self._began_s
        self._metrics.ended(self._method, _code(kind, self._context), length_s)


class RpcWatch(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Has to be the first of a server's interceptors, so that it sees what the others do.

    What it cannot see: a call that gRPC refuses before it looks for a handler, and the status
    of an answer that cannot be sent after its handler returned.
    """

    def __init__(self, metrics: RpcMetrics) -> None:
        self._metrics = metrics

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler = await continuation(handler_call_details)
        if handler is None:
            self._metrics.began(UNKNOWN)
            self._metrics.ended(UNKNOWN, grpc.StatusCode.UNIMPLEMENTED, 0.0)
            return handler
        method = handler_call_details.method.removeprefix("/")
        return self._watched(method, handler)

    def _watched(self, method: str, handler: Any) -> Handler:
        watch = partial(_Watch, self._metrics, method)
        behaviours = {kind: getattr(handler, kind) for kind in KINDS}
        made: Handler = handler._replace(
            **{kind: _wrapped(does, watch) for kind, does in behaviours.items() if does}
        )
        return made


def _wrapped(behaviour: Behaviour, watch: Callable[[Context], _Watch]) -> Behaviour:
    """The same in the same style: gRPC drives a generator, or awaits a coroutine that returns
    the answer or writes the answers itself."""
    if inspect.isasyncgenfunction(behaviour):

        async def generator(request: Any, context: Context) -> AsyncIterator[Any]:
            with watch(context):
                async with aclosing(behaviour(request, context)) as answers:
                    async for answer in answers:
                        yield answer

        return generator

    async def coroutine(request: Any, context: Context) -> Any:
        with watch(context):
            return await behaviour(request, context)

    return coroutine


def _code(kind: type[BaseException] | None, context: Context) -> grpc.StatusCode:
    """What the caller was told. gRPC cancels a handler when the call's deadline passes, as it
    does when a caller leaves."""
    if kind is None or issubclass(kind, grpc.aio.AbortError):
        return context.code() or grpc.StatusCode.OK
    if not issubclass(kind, asyncio.CancelledError | GeneratorExit):
        return grpc.StatusCode.UNKNOWN
    left_s = context.time_remaining()
    if left_s is not None and left_s < CLOCKS_DIFFER_S:
        return grpc.StatusCode.DEADLINE_EXCEEDED
    return grpc.StatusCode.CANCELLED
