"""`grpc.health.v1` of one listener.

| name                  | SERVING                                                            |
|-----------------------|--------------------------------------------------------------------|
| `live`                | from the first call to the last: process and event loop answer     |
| `ready`, the empty one | while an engine serves and the server does not drain               |
| the service's own     | as `ready`                                                         |

`Check` and `Watch` as the health protocol has them, and `List`, which grpcio's own servicer and
messages lack. That servicer also lets a caller that leaves cut the news of others, and one that
does not read hold up everybody's.
"""

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

LIVE, READY, WHOLE = "live", "ready", ""
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

Context = grpc.aio.ServicerContext[Message, Message]


class Health:
    """What a listener shows. All on one event loop; changes are plain calls."""

    def __init__(self, service: str) -> None:
        self._follow = (WHOLE, READY, service)
        self._shown = {LIVE: SERVING} | dict.fromkeys(self._follow, NOT_SERVING)
        self._changed = asyncio.Event()
        self._drains = self._ended = False

    def show(self, serving: bool) -> None:
        """Whether an engine serves; without effect while the server drains."""
        if not self._drains:
            self._shown |= dict.fromkeys(self._follow, SERVING if serving else NOT_SERVING)
            self._tell()

    def drain(self) -> None:
        """NOT_SERVING from now on, but for `live`."""
        self.show(False)
        self._drains = True

    def end(self) -> None:
        """Watches end, which would otherwise hold up the end of the server."""
        self._ended = True
        self._tell()

    def handler(self) -> "grpc.GenericRpcHandler[Message, Message]":
        """What a server is given."""
        request = health_pb2.HealthCheckRequest.FromString
        answer = health_pb2.HealthCheckResponse.SerializeToString
        listing = _LIST.SerializeToString
        methods = {
            "Check": grpc.unary_unary_rpc_method_handler(self._check, request, answer),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch, request, answer),
            "List": grpc.unary_unary_rpc_method_handler(self._list, Empty.FromString, listing),
        }
        return grpc.method_handlers_generic_handler(HEALTH, methods)

    async def _check(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in self._shown:
            known = ", ".join(sorted(filter(None, self._shown)))
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"service {request.service!r}: known are {known}"
            )
        return health_pb2.HealthCheckResponse(status=self._shown[request.service])

    async def _watch(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """The status now and whenever it changed; a reader that lags misses some."""
        said = None
        while not self._ended:
            changed = self._changed
            status = self._shown.get(request.service, UNKNOWN)
            if status != said:
                said = status
                yield health_pb2.HealthCheckResponse(status=status)
            await changed.wait()

    async def _list(self, request: Empty, context: Context) -> Message:
        statuses = [_ENTRY(key=name, value={"status": s}) for name, s in self._shown.items()]
        return _LIST(statuses=statuses)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _messages() -> tuple[type[Message], type[Message]]:
    """HealthListResponse and an entry of its map, as the bytes of the health protocol have
    them; under another name, for a grpcio that brings them itself one day."""
    package, field = "walkway.health", descriptor_pb2.FieldDescriptorProto
    of_health = health_pb2.DESCRIPTOR
    file = descriptor_pb2.FileDescriptorProto(
        name="walkway/health.proto", package=package, dependency=[of_health.name]
    )
    entry = file.message_type.add(name="Entry")
    entry.field.add(name="key", number=1, type=field.TYPE_STRING)
    entry.field.add(
        name="value",
        number=2,
        type=field.TYPE_MESSAGE,
        type_name=f".{health_pb2.HealthCheckResponse.DESCRIPTOR.full_name}",
    )
    listing = file.message_type.add(name="List")
    listing.field.add(
        name="statuses",
        number=1,
        type=field.TYPE_MESSAGE,
        label=field.LABEL_REPEATED,
        type_name=f".{package}.Entry",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(of_health.serialized_pb)
    pool.Add(file)
    made = message_factory.GetMessageClass
    entries, lists = (pool.FindMessageTypeByName(f"{package}.{n}") for n in ("Entry", "List"))
    return made(entries), made(lists)


_ENTRY, _LIST = _messages()
