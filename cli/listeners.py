"""Finds out what listens at an address that did not answer a call, and where to ask."""

import http.client
import socket

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cli.asking import open_channel
from cli.target import ADMIN, SERVICE, Role

LOOK_S = 1.0
NAMES = {SERVICE: "inference", ADMIN: "admin"}


def what_listens(address: str, wanted: Role) -> str:
    """Why a call for `wanted` found nothing at `address`, and what to try, in one line."""
    other = ADMIN if wanted is SERVICE else SERVICE
    host, _, port = address.rpartition(":")
    asked = f"this command asks the {NAMES[wanted]} one"
    if _offers(address, wanted):
        return f"the service at {address} does not know this call: is it an older one?"
    if _offers(address, other):
        said = f"{address} is a service's {NAMES[other]} address, and {asked}"
    elif not _connects(host, port):
        said = f"nothing answers at {address}; is `walkway serve` running there?"
        default = f"{host}:{wanted.port}"
        return f"{said} {default} answers" if _offers(default, wanted) else said
    elif _speaks_http(host, port):
        said = f"{address} speaks HTTP/1.1 (the metrics address?), and {asked}"
    else:
        said = f"{address} is not walkway's, and {asked}"
    return f"{said}: {_elsewhere(host, wanted)}"


def _elsewhere(host: str, wanted: Role) -> str:
    """The default port where the service answers there, else the setting."""
    if _offers(f"{host}:{wanted.port}", wanted):
        return f"try --target {host}:{wanted.port}"
    return f"its port is the setting {wanted.group}.port, {wanted.port} by default"


def _offers(address: str, role: Role) -> bool:
    """Whether the role's service is there, serving or not."""
    asked = health_pb2.HealthCheckRequest(service=role.service)
    with open_channel(address) as channel:
        try:
            health_pb2_grpc.HealthStub(channel).Check(asked, timeout=LOOK_S)
        except grpc.RpcError:
            return False
    return True


def _connects(host: str, port: str) -> bool:
    try:
        socket.create_connection((host.strip("[]"), int(port)), LOOK_S).close()
    except (OSError, ValueError):
        return False
    return True


def _speaks_http(host: str, port: str) -> bool:
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=LOOK_S)
    try:
        connection.request("HEAD", "/metrics")
        connection.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True
