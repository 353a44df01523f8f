"""The gRPC listener: options, address, health and reflection."""

import socket
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio

from protos.descriptors import descriptor_set
from protos.walkway.v1 import admin_pb2, inference_pb2
from service.health import HEALTH, Health
from service.reflection import Descriptors, Reflection
from service.settings import Server

SERVICE = inference_pb2.DESCRIPTOR.services_by_name["InferenceService"].full_name
GENERATING = (f"/{SERVICE}/Generate", f"/{SERVICE}/GenerateStream")
ADMIN = admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name
DEAD_PEER_PING_MS = 60_000
DEAD_PEER_WAIT_MS = 20_000
HANDSHAKE_MS = 20_000
INT_MAX = 2**31 - 1


class PortTaken(Exception):
    """An address cannot be listened on; one line for people."""


def options(server: Server, connections: int) -> list[tuple[str, int]]:
    """Channel arguments. A ping more often than `keepalive_min_ping_s` counts as a strike,
    and gRPC ends a connection with more than two; the names are those of
    grpc/impl/channel_arg_names.h, an unknown one is ignored without a word."""
    return [
        # A message that is longer than allowed is refused by us, with a log line, unless it is
        # so long that it had better not be read.
        ("grpc.max_receive_message_length", min(2 * server.max_message_bytes, INT_MAX)),
        ("grpc.max_send_message_length", server.max_message_bytes),
        # Of more calls than these that are not taken yet gRPC would cancel some, with no word
        # of why. Those that are too many are refused when they are taken.
        ("grpc.server.max_pending_requests", INT_MAX),
        ("grpc.server.max_pending_requests_hard_limit", INT_MAX),
        ("grpc.server_max_unrequested_time_in_server", INT_MAX),
        ("grpc.so_reuseport", 0),  # else a second server shares the port silently
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_ping_strikes", 2),
        (
            "grpc.http2.min_ping_interval_without_data_ms",
            int(server.keepalive_min_ping_s * 1e3),
        ),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.max_connection_idle_ms", int(server.connection_idle_s * 1e3)),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        # A client whose machine is gone says nothing: ask, and end its calls.
        ("grpc.keepalive_time_ms", DEAD_PEER_PING_MS),
        ("grpc.keepalive_timeout_ms", DEAD_PEER_WAIT_MS),
    ]


def make_server(
    settings: Server,
    service: str,
    health: Health,
    connections: int,
    interceptors: Sequence["grpc.aio.ServerInterceptor[Any, Any]"] = (),
) -> grpc.aio.Server:
    """A server for one service, with health and reflection, not listening yet."""
    server = grpc.aio.server(interceptors=interceptors, options=options(settings, connections))
    server.add_generic_rpc_handlers((health.handler(),))
    Reflection(Descriptors(descriptor_set()), (service, HEALTH)).add_to(server)
    return server


def listen(server: grpc.aio.Server, host: str, port: int) -> int:
    """Take the address and return the port. Raises PortTaken."""
    _try_address(host, port)
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        return server.add_insecure_port(target)
    except RuntimeError as error:
        raise PortTaken(f"cannot listen on {target}: {error}") from error


def _try_address(host: str, port: int) -> None:
    """gRPC writes several lines of its own about an address that it cannot bind, and says
    less than the system does: so look first."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        raise PortTaken(f"cannot listen on {host}:{port}: {error.strerror}") from error
