"""Frozen copies of requests, handed to strategies when invariants are checked, so that one
that changes what it was given is found out."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from schedulers.interface import RequestId, RequestView


@dataclass(frozen=True, slots=True)
class FrozenView:
    """A `RequestView` that cannot be changed."""

    id: RequestId
    priority: int
    tenant: str
    arrival_s: float
    deadline_s: float | None
    first_token_deadline_s: float | None
    tokens_per_second: float | None
    prompt_tokens: int
    output_tokens: int
    min_tokens: int
    max_tokens: int
    known: int
    computed: int
    preemptions: int


def frozen(requests: Mapping[RequestId, RequestView]) -> Mapping[RequestId, RequestView]:
    """A read-only copy; O(requests)."""
    fields = FrozenView.__slots__
    return MappingProxyType(
        {id: FrozenView(*(getattr(r, name) for name in fields)) for id, r in requests.items()}
    )
