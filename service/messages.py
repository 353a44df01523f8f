"""What the front end and the engine say to each other: plain values, msgpack on the wire.

Times are seconds of the machine's monotonic clock, which both sides share. Ids are the
front end's counter; messages of another `generation` than the current are ignored.
"""

from enum import Enum
from typing import Any

import msgspec

from models.batch import Sampling


class Finish(Enum):
    """Why a request ended. The first three are complete answers."""

    STOP = "stop"  # end of sequence, a stop id, or (front end) a stop string
    LENGTH = "length"
    MAX_TIME = "max_time"  # the caller's own limit: what there is, is the answer
    EXPIRED = "expired"  # the call's deadline or the server's request timeout
    QUEUE_TIMEOUT = "queue_timeout"
    REFUSED = "refused"  # by the scheduler: hopeless by estimate
    CANCELLED = "cancelled"
    FAILED = "failed"  # our fault


class Limits(msgspec.Struct, frozen=True, array_like=True):
    """What a request may use. `max_tokens` is resolved (at least 0). `end_by_s`: answer
    with what there is; `expire_by_s`: an error; `admit_by_s`: an error while waiting."""

    max_tokens: int
    end_by_s: float | None = None
    expire_by_s: float | None = None
    admit_by_s: float | None = None


class Submit(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A new request. `prompt` is a list of token ids; `namespace` separates prefix caches
    (the caller's salt)."""

    id: int
    prompt: list[int]
    sampling: Sampling
    limits: Limits
    arrival_s: float
    priority: int = 4
    tenant: str = ""
    namespace: str = ""
    deadline_s: float | None = None
    first_token_deadline_s: float | None = None
    tokens_per_second: float | None = None


class End(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The front end is done with a request (cancelled, or a stop string matched)."""

    id: int
    reason: Finish


class Ack(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The front end has taken one `StepEvents`; the engine may send another."""


class Stop(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Leave the loop and exit."""


class SetScheduler(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Use another strategy from the next step on. Answered by `SchedulerSet` with the same
    `ticket`."""

    ticket: int
    name: str
    options: dict[str, Any] = {}


class Inspect(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Answered by `Inspected` with the same `ticket`; `requests` False: the scheduler
    alone."""

    ticket: int
    requests: bool = True


class Ping(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Answered by a `StepEvents` between two steps, so that an engine without work shows that
    its decode loop runs."""


Command = Submit | End | Ack | Stop | SetScheduler | Inspect | Ping


class Pause(msgspec.Struct, frozen=True, array_like=True):
    """A running request gave way. `mode` is what was done ("recompute" also where the host
    store was full), `cause` and the two estimates are the strategy's. Times from arrival."""

    at_s: float
    mode: str  # schedulers.interface.Mode
    cause: str  # schedulers.interface.Cause
    pages: int
    swap_s: float | None = None
    recompute_s: float | None = None


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    """What was done to a request, sent when it ends. `paused_s` is the time between giving
    way and running again, all pauses together; `pauses` names the first of them, at most
    `MAX_PAUSES`. `share_tokens` were granted out of the strategy's share for requests that
    would wait too long without it."""

    queue_s: float
    cached_tokens: int
    steps: int
    preemptions: int
    recomputed_tokens: int
    swapped_pages: int = 0
    paused_s: float = 0.0
    pauses: tuple[Pause, ...] = ()
    share_tokens: int = 0


MAX_PAUSES = 32


class RequestEvent(msgspec.Struct, array_like=True):
    """News of one request; several steps' news merge into one. `paused` and `resumed_s`
    (seconds from arrival) take turns, beginning with whatever the request was not.
    `prompt_logprobs` and `logprobs` only when wanted, as `service.packing` has them.
    `finish` and `receipt` come together, last."""

    id: int
    admitted: bool = False
    paused: list[Pause] = []
    resumed_s: list[float] = []
    tokens: list[int] = []
    logprobs: bytearray = bytearray()
    prompt_logprobs: bytearray = bytearray()
    finish: Finish | None = None
    detail: str = ""
    receipt: Receipt | None = None


class StepStats(msgspec.Struct, array_like=True):
    """Gauges after a step, and counters and time since the last message (they add up
    when messages merge). `used_slots` of `held_pages` pages carry a token; `scheduler` is
    the strategy in use. `overrun_tokens` were drawn for requests that had ended.
    `refused_swaps` were recomputed, for want of room on the host. `step_tokens` were computed
    in steps of any kind."""

    scheduler: str = ""
    running: int = 0
    waiting: int = 0
    swapped: int = 0
    free_pages: int = 0
    cached_pages: int = 0
    held_pages: int = 0
    used_slots: int = 0
    steps: int = 0
    rows: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    evictions: dict[str, int] = {}  # by "mode cause"
    recomputed_tokens: int = 0
    swapped_pages: int = 0
    cached_tokens: int = 0
    refused_swaps: int = 0
    short_rows: int = 0
    overrun_tokens: int = 0
    plan_faults: int = 0
    schedule_s: float = 0.0
    model_s: float = 0.0
    sample_s: float = 0.0
    copy_s: float = 0.0
    step_tokens: int = 0
    host_free_pages: int = 0


class StepEvents(msgspec.Struct, tag=True, array_like=True):
    """One message a step."""

    generation: int
    events: list[RequestEvent]
    stats: StepStats


class SchedulerSet(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The strategy was exchanged, or was not and `error` says why in one line, and whether
    the fault is `in_options`."""

    generation: int
    ticket: int
    error: str | None = None
    in_options: bool = False


class RequestState(msgspec.Struct, frozen=True, array_like=True):
    """One live request, for people who look in. `state` is `service.request.State`'s."""

    id: int
    state: str
    tenant: str
    priority: int
    age_s: float
    prompt_tokens: int
    output_tokens: int
    computed_tokens: int
    pages: int
    host_pages: int
    preemptions: int
    recomputed_tokens: int


class SchedulerState(msgspec.Struct, frozen=True, array_like=True):
    """The strategy that plans now. `faults` are its bad plans since the engine started;
    `replaces` names the one that FCFS stands in for, when it does."""

    name: str
    options: dict[str, Any]
    faults: int
    replaces: str = ""


class Inspected(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What the engine holds now."""

    generation: int
    ticket: int
    scheduler: SchedulerState
    requests: list[RequestState]


class Ready(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The engine serves. What the front end needs to know of it to judge a request;
    `temperature` is that of requests which name none. `pid` to `host_pages` are for metrics, 0
    where unknown; `page_bytes` is of a page on all ranks. From `tensors` on: what was loaded,
    for people."""

    generation: int
    model: str
    family: str
    dtype: str
    vocab_size: int
    context_tokens: int
    num_pages: int
    page_size: int
    attention: str
    attention_why: str
    batch_invariant: bool
    scheduler: str
    eos_ids: list[int]
    temperature: float = 1.0
    pid: int = 0
    max_rows: int = 0
    max_step_tokens: int = 0
    page_bytes: int = 0
    host_pages: int = 0
    tensors: int = 0
    unused_tensors: list[str] = []
    head: str = ""
    rope: str = ""
    window: int | None = None


class Failed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Start-up failed, or the engine gives up; one line for people."""

    generation: int
    message: str


Event = StepEvents | Ready | Failed | SchedulerSet | Inspected
