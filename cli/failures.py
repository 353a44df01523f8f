"""What went wrong, in one line on stderr."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import typer

from cli.target import SERVICE, Role, read_target


@contextmanager
def asking(target: str | None, port: int | None, role: Role = SERVICE) -> Iterator[str]:
    """The address to ask. A failed call becomes a line and exit code 1; Ctrl-C 130; text
    that is no UTF-8, in an argument or from stdin, a line and 2."""
    address = read_target(target, port, role)
    try:
        yield address
    except grpc.RpcError as error:
        print(f"walkway: {describe(error, address, role)}", file=sys.stderr)
        raise typer.Exit(1) from None
    except UnicodeError as error:
        print(f"walkway: the text is not valid UTF-8: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def describe(error: grpc.RpcError, address: str, role: Role = SERVICE) -> str:
    """A failed call for people: status and message, or what is at the address instead."""
    if not isinstance(error, grpc.Call):
        return str(error)
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE and "errors resolving" in details.lower():
        return f"no host named {address.rpartition(':')[0]} is found"
    lost = code is grpc.StatusCode.UNAVAILABLE and "failed to connect" in details.lower()
    if lost or code is grpc.StatusCode.UNIMPLEMENTED:
        from cli.listeners import what_listens

        return what_listens(address, role)
    return f"{code.name}: {details}"
