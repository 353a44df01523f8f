"""Asks the service on this machine for its health, as a container's health check does:

    python -m service.healthcheck

Reads the same settings as the service. Exit code 0 when it is SERVING, else 1 and a line.
"""

import sys

import grpc
from grpc_health.v1 import health_pb2

from service.config import load_settings

METHOD = "/grpc.health.v1.Health/Check"
TIMEOUT_S = 3.0
ANY = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


def health(target: str) -> str:
    """SERVING, NOT_SERVING, or the name of the status that the call ended with."""
    with grpc.insecure_channel(target) as channel:
        check = channel.unary_unary(
            METHOD,
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            answer = check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            return str(error.code().name)
    name: str = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    return name


def main() -> int:
    server = load_settings().server
    found = health(f"{ANY.get(server.host, server.host)}:{server.port}")
    print(found)
    return 0 if found == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main())
