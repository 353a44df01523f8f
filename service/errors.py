"""What a call can end with besides an answer, and the one table to gRPC status codes."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status

JITTER = 0.5


class ServiceError(Exception):
    """A call's end. The message is for the caller: it gives the value and the limit."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A field that breaks a rule: its path in the request, and the value and the limit."""

    field: str
    description: str


class InvalidArgument(ServiceError):
    """The caller's mistake, whatever state the server is in."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        super().__init__("; ".join(f"{v.field}: {v.description}" for v in violations))
        self.violations = violations


class TooLarge(ServiceError):
    """A message of more bytes than the server takes or sends."""


class NeverFits(ServiceError):
    """Right in itself, but larger than this server's memory."""


class NotOffered(ServiceError):
    """Right in itself, but this model has no such thing."""


class DuplicateRequest(ServiceError):
    """A call with this request id is open."""


class Retryable(ServiceError):
    """Nothing was done; the same call may succeed after `retry_after_s`, which is up to half
    longer than was estimated: those who are refused together had better not return so."""

    def __init__(self, message: str, estimate_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = estimate_s * random.uniform(1, 1 + JITTER)


class Overloaded(Retryable):
    """Too much waits already."""


class Unavailable(Retryable):
    """The engine is down or the server drains."""


class NotRead(ServiceError):
    """The caller did not read its answer, and too much is unread."""


class Expired(ServiceError):
    """The call's deadline or the server's time limit passed."""


class Cancelled(ServiceError):
    """The request was cancelled."""


class Internal(ServiceError):
    """Our fault."""


CODES: dict[type[ServiceError], grpc.StatusCode] = {
    InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    TooLarge: grpc.StatusCode.RESOURCE_EXHAUSTED,
    NeverFits: grpc.StatusCode.FAILED_PRECONDITION,
    NotOffered: grpc.StatusCode.FAILED_PRECONDITION,
    DuplicateRequest: grpc.StatusCode.ALREADY_EXISTS,
    Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
    NotRead: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Expired: grpc.StatusCode.DEADLINE_EXCEEDED,
    Cancelled: grpc.StatusCode.CANCELLED,
    Internal: grpc.StatusCode.INTERNAL,
}


def details_of(error: ServiceError) -> list[BadRequest | RetryInfo]:
    """The machine-readable part of an error."""
    if isinstance(error, InvalidArgument):
        fields = [
            BadRequest.FieldViolation(field=v.field, description=v.description)
            for v in error.violations
        ]
        return [BadRequest(field_violations=fields)]
    if isinstance(error, Retryable):
        delay = Duration()
        delay.FromNanoseconds(int(error.retry_after_s * 1e9))
        return [RetryInfo(retry_delay=delay)]
    return []


def trailer_of(error: ServiceError) -> tuple[tuple[str, str | bytes], ...]:
    """The trailing metadata that carries `details_of`, as gRPC's richer error model has it.
    When to come again is said for gRPC's own retries and for HTTP proxies as well."""
    details = details_of(error)
    if not details:
        return ()
    status = Status(code=CODES[type(error)].value[0], message=str(error))
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    rich = ("grpc-status-details-bin", status.SerializeToString())
    if not isinstance(error, Retryable):
        return (rich,)
    after_s = error.retry_after_s
    return (
        rich,
        ("grpc-retry-pushback-ms", str(math.ceil(1e3 * after_s))),
        ("retry-after", str(math.ceil(after_s))),
    )
