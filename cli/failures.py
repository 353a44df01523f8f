"""What went wrong, in one line on stderr."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import typer


@contextmanager
def fail_in_one_line(target: str) -> Iterator[None]:
    """Turn a failed call into a line and exit code 1; Ctrl-C into 130; text that is no
    UTF-8, in an argument or from stdin, into a line and 2."""
    try:
        yield
    except grpc.RpcError as error:
        print(f"walkway: {describe(error, target)}", file=sys.stderr)
        raise typer.Exit(1) from None
    except UnicodeError as error:
        print(f"walkway: the text is not valid UTF-8: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def describe(error: grpc.RpcError, target: str) -> str:
    """A failed call for people: status and message, or that nobody is there."""
    if not isinstance(error, grpc.Call):
        return str(error)
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE and "failed to connect" in details.lower():
        return f"nothing answers at {target}; is `walkway serve` running there?"
    return f"{code.name}: {details}"
