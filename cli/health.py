"""Asks for a service's health by the names that gRPC's health protocol has here."""

from collections.abc import Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.as_json import print_json
from cli.asking import open_channel
from cli.target import ADMIN, SERVICE

TIMEOUT_S = 5.0
WHOLE = ""
NAMES = (WHOLE, "live", "ready", SERVICE.service, ADMIN.service)
SERVING, UNKNOWN = "SERVING", "unknown here"
COLOURS = {SERVING: "green", "NOT_SERVING": "red"}


def show_health(target: str, service: str | None, as_json: bool) -> int:
    """Exit code: 0 where all names that the address knows are SERVING, or the one that was
    asked for; else 1."""
    found = _health(target, NAMES if service is None else (service,))
    if service is None:
        found = {name: state for name, state in found.items() if state != UNKNOWN}
    if as_json:
        print_json(found)
    else:
        _show(found)
    return 0 if found and set(found.values()) == {SERVING} else 1


def _health(target: str, names: Sequence[str]) -> dict[str, str]:
    statuses = health_pb2.HealthCheckResponse.ServingStatus
    found = {}
    with open_channel(target) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        for name in names:
            request = health_pb2.HealthCheckRequest(service=name)
            try:
                found[name] = statuses.Name(check(request, timeout=TIMEOUT_S).status)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise
                found[name] = UNKNOWN
    return found


def _show(found: dict[str, str]) -> None:
    table = Table(show_header=False, box=None)
    for name, state in found.items():
        table.add_row(Text(name or "(the whole server)"), Text(state, COLOURS.get(state, "")))
    Console(highlight=False).print(table)
