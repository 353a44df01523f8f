"""Asks the service on this machine for its health, as a container's health check does:

    python -m service.healthcheck [NAME]

NAME is one of `service.health`: `ready`, the default, or `live`. Reads the same settings as the
service. Exit code 0 when it is SERVING, else 1 and a line.
"""

import sys

import grpc
from grpc_health.v1 import health_pb2

from service.config import ConfigError, load_settings
from service.health import READY
from service.settings import Server

METHOD = "/grpc.health.v1.Health/Check"
TIMEOUT_S = 3.0
ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}
NO_PROXY = (("grpc.enable_http_proxy", 0),)  # a proxy's 127.0.0.1 is another machine


def health(target: str, name: str = READY) -> str:
    """SERVING, NOT_SERVING, or the name of the status that the call ended with."""
    with grpc.insecure_channel(target, options=NO_PROXY) as channel:
        check = channel.unary_unary(
            METHOD,
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            answer = check(health_pb2.HealthCheckRequest(service=name), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            return str(error.code().name)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def address(server: Server) -> str:
    """Where to ask a service that listens so."""
    host = ANY.get(server.host, server.host)
    return f"[{host}]:{server.port}" if ":" in host else f"{host}:{server.port}"


def main(name: str = READY) -> int:
    """Ask, and the exit code."""
    try:
        found = health(address(load_settings().server), name)
    except ConfigError as error:
        found = str(error)
    print(found)
    return 0 if found == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
