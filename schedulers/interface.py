"""What a scheduler is asked and what it answers.

A scheduler is a pure answer to a snapshot: it holds no allocator, reads no clock,
awaits nothing and changes nothing it was given. It may remember (queues, deficits),
fed by snapshots alone. `schedulers.check` has the rules a plan is held to.

Prefill, a chunk of it, decode, a cache hit and a resumed request are one thing here:
so many tokens to compute for that request in this step.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from math import sqrt
from typing import Any, ClassVar, NewType, Protocol

RequestId = NewType("RequestId", int)


class Mode(Enum):
    """How a victim gives its pages back."""

    RECOMPUTE = "recompute"
    SWAP = "swap"


class Cause(Enum):
    """Why a victim was chosen; only reported, never acted on."""

    PAGES = "pages"
    ROWS = "rows"
    PRIORITY = "priority"
    FAIRNESS = "fairness"
    DEADLINE = "deadline"


class Promise(Enum):
    """What the conformance kit holds a strategy to.

    Those in `ALWAYS` are asked of every strategy, the others of those that declare them.
    ARCHITECTURE.md says what exactly is asked.
    """

    LEGAL = "legal"
    PROGRESS = "progress"
    DETERMINISTIC = "deterministic"
    RESUMES_SWAPPED = "resumes_swapped"
    NO_STARVATION = "no_starvation"
    WORK_CONSERVING = "work_conserving"
    BOUNDED_RECOMPUTE = "bounded_recompute"
    STEADY = "steady"


ALWAYS = frozenset(
    {
        Promise.LEGAL,
        Promise.PROGRESS,
        Promise.DETERMINISTIC,
        Promise.RESUMES_SWAPPED,
        Promise.STEADY,
    }
)


class RequestView(Protocol):
    """A request as a strategy sees it. Bare counts are tokens, times are seconds of the
    snapshot's clock."""

    @property
    def id(self) -> RequestId:
        """Grows with arrival, so it also orders requests of one arrival time."""

    @property
    def priority(self) -> int:
        """0-15, higher is more urgent."""

    @property
    def tenant(self) -> str: ...

    @property
    def arrival_s(self) -> float: ...

    @property
    def deadline_s(self) -> float | None:
        """When the whole answer is wanted."""

    @property
    def first_token_deadline_s(self) -> float | None: ...

    @property
    def tokens_per_second(self) -> float | None:
        """The pace wanted after the first token."""

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def output_tokens(self) -> int: ...

    @property
    def min_tokens(self) -> int: ...

    @property
    def max_tokens(self) -> int:
        """At most so many output tokens: what the caller asked for, or all that the model's
        context leaves."""

    @property
    def known(self) -> int:
        """Prompt and output tokens so far, and what a step in flight will add."""

    @property
    def computed(self) -> int:
        """Of `known`, those whose keys and values are in pages (device or host)."""

    @property
    def preemptions(self) -> int: ...


class PageArithmetic(Protocol):
    """The one owner of page counts, used by strategies and by the check alike."""

    def cached_tokens(self, request: RequestId) -> int:
        """Tokens a waiting request would find in the prefix cache now: whole pages, at
        most known - 1. 0 for a running or swapped one. Memoised."""

    def pages_for(self, request: RequestId, tokens: int) -> int:
        """What computing `tokens` takes out of `free_pages`: new pages, cached and
        unreferenced ones it pins, every page of a swapped request."""

    def pages_from(self, request: RequestId) -> int:
        """Lower bound of what evicting a running request gives back now. Shared pages
        count 0, and so does all that a step in flight touches."""


class AnswerLengths(Protocol):
    """How long answers will be, learned from those that ended."""

    def quantile(self, view: RequestView, share: float) -> int:
        """Output tokens in all that, with probability `share`, the answer to `view` does not
        exceed, given that it has `output_tokens` and goes on. Within `min_tokens` and
        `max_tokens`; the least possible while too few have ended. O(log answers)."""


def least_tokens(view: RequestView) -> int:
    """Output tokens that a request which goes on will have at least."""
    return min(view.max_tokens, max(view.min_tokens, view.output_tokens + 1))


@dataclass(frozen=True, slots=True)
class NothingLearned:
    """Of a driver that learns no lengths."""

    def quantile(self, view: RequestView, share: float) -> int:
        """The least possible."""
        return least_tokens(view)


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Measured seconds: for each prefill token, decode row and page moved to or from the
    host, for any step in addition, for each pair of a prefill token and one that it attends
    to, and for each token of context that a decode row reads. 0 for what was not measured
    yet."""

    token_s: float = 0.0
    row_s: float = 0.0
    page_s: float = 0.0
    step_s: float = 0.0
    pair_s: float = 0.0
    context_s: float = 0.0

    def decode_s(self, rows: int, context_tokens: int) -> float:
        """Of `rows` decode rows that together read `context_tokens`, without `step_s`."""
        return rows * self.row_s + context_tokens * self.context_s

    def prefill_s(self, tokens: int, before: int = 0) -> float:
        """Of computing `tokens` of a prompt behind `before` others, without `step_s`."""
        pairs = tokens * before + tokens * (tokens + 1) / 2
        return tokens * self.token_s + pairs * self.pair_s

    def prefill_tokens(self, seconds: float, before: int = 0) -> int:
        """The most tokens for which `prefill_s` stays within `seconds`; 0 where prefill was
        not measured yet."""
        if seconds <= 0:
            return 0
        each_s = self.token_s + (before + 0.5) * self.pair_s
        if not each_s:
            return 0
        # Of the quadratic's root the form that also holds without pairs.
        return int(2 * seconds / (each_s + sqrt(each_s**2 + 2 * self.pair_s * seconds)))


@dataclass(frozen=True, slots=True)
class Served:
    """Tokens computed for a tenant since the engine started."""

    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known when a step is planned. Live, not copied: valid during `plan` only.

    `waiting`, `running` and `swapped` iterate in order of id, which is order of arrival;
    a preempted request keeps its place. `arrived` and `left` name what entered and left
    `waiting` since this strategy's last plan (a request may be in both; `waiting` tells).
    `rebuild` is true on the first plan after a start, an exchange or a step that another
    plan was used for: forget what you remember and read `waiting` anew. With two steps in
    flight a plan may not be carried out and another be asked for; the snapshot tells.
    """

    now_s: float
    waiting: Mapping[RequestId, RequestView]
    running: Mapping[RequestId, RequestView]
    swapped: Mapping[RequestId, RequestView]
    arrived: Sequence[RequestId]
    left: Sequence[RequestId]
    rebuild: bool
    budget: int
    max_rows: int
    page_size: int
    free_pages: int
    watermark_pages: int
    draining_pages: int
    host_free_pages: int
    memory: PageArithmetic
    costs: StepCosts = StepCosts()
    served: Mapping[str, Served] = field(default_factory=dict)
    lengths: AnswerLengths = NothingLearned()

    def pending(self, view: RequestView) -> int:
        """Tokens still to compute before `view` samples; 1 is a decode row."""
        if view.computed:  # a request that waits has none, and only then the cache counts
            return view.known - view.computed
        return view.known - self.memory.cached_tokens(view.id)


@dataclass(frozen=True, slots=True)
class Eviction:
    """How and why a running request gives way, with the two estimates (seconds) where a
    cost model chose."""

    mode: Mode
    cause: Cause
    swap_s: float | None = None
    recompute_s: float | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A waiting request that nothing was sent for is turned away; `estimate_s` is the
    lower bound of the time it would have needed."""

    estimate_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """One step. `tokens`: 1..pending for each request that computes; a waiting request
    named here is admitted, a swapped one resumed. `evict`: running, disjoint from
    `tokens`. `refuse`: waiting, with no output yet. `on_share`: of `tokens`, those whose
    tokens of this step come out of a share that the strategy keeps for requests which would
    wait too long without it. That is only reported: the receipt of a request counts them."""

    tokens: Mapping[RequestId, int] = field(default_factory=dict)
    evict: Mapping[RequestId, Eviction] = field(default_factory=dict)
    refuse: Mapping[RequestId, Refusal] = field(default_factory=dict)
    on_share: Set[RequestId] = frozenset()


class Scheduler(Protocol):
    """A strategy. The service calls `cls(options)` with an instance of `cls.Options`, a
    frozen dataclass whose fields carry `metadata={"doc": ...}`."""

    Options: ClassVar[type[Any]]

    @property
    def promises(self) -> frozenset[Promise]:
        """What it is held to: on the class with its default options, on the object with its
        own."""

    def plan(self, snap: Snapshot) -> Plan: ...
