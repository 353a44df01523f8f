"""What the engine core hands to a model runner and what comes back. No tensors here.

The core decides rows; a runner turns them into tensors, writes keys and values into the
pages, runs the layers and samples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

RequestId = NewType("RequestId", int)

IN_FLIGHT = -1
"""In a row's tokens and output: the token that the request draws in the step started just
before, which has not returned. It can only be the last of either."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a request's next token is chosen. Defaults are greedy and without filters.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 are off. The repetition
    penalty looks at prompt and output, the other two at output only. `stop_ids` (end of
    sequence included, unless ignored) cannot be drawn before `min_tokens` outputs.
    `logprobs` None: not wanted; n: the token's own and n alternatives (0-20).
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    stop_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None


@dataclass(slots=True)
class Row:
    """One request's part of a step.

    `tokens` are computed at positions `start`, `start + 1`, ...; `pages` is the page table
    and covers all of them. `prompt` and `output` are everything known so far (`output`
    ends with the last element of `tokens` for a decode row). A row with `samples` draws
    the token that follows, output number `len(output)`; any other is a chunk.
    """

    request: RequestId
    tokens: Sequence[int]
    start: int
    pages: Sequence[int]
    samples: bool
    sampling: Sampling
    prompt: Sequence[int]
    output: Sequence[int]


@dataclass(slots=True)
class StepBatch:
    """One step. Copies come first, out before in, each a pair (source, destination) of
    device and host page ids; then the rows are computed."""

    rows: Sequence[Row]
    swap_out: Sequence[tuple[int, int]] = ()
    swap_in: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural log-probability of a token under the model's raw distribution, and the most
    likely alternatives (token, log-probability), best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class RowResult:
    """What a row brought. `tokens` is empty for a chunk. `prompt_logprobs` has one entry
    for each computed position p whose successor p + 1 is a prompt token, when wanted (so
    the first prompt token has none). `error` is set when this row alone failed (NaN,
    nothing left to draw from)."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """Results by request, and where the time went (seconds). `copy_s`, of a step that copies,
    for the pages whose copies ended since the last one; they may run beside `model_s`, which
    does not count them. `again`: why the step was computed a second time, if it was."""

    rows: Mapping[RequestId, RowResult]
    model_s: float = 0.0
    sample_s: float = 0.0
    copy_s: float = 0.0
    again: str | None = None


class Runner(Protocol):
    """Executes steps, one at a time. Whatever it raises ends the step's own rows."""

    def step(self, batch: StepBatch) -> StepResult: ...


Landing = Callable[[], StepResult]
"""Waits for a step that was started, and returns or raises what became of it."""


@dataclass(frozen=True, slots=True)
class Landed:
    """The `Landing` of a step that was over when `start` returned."""

    result: StepResult

    def __call__(self) -> StepResult:
        return self.result


class AheadRunner(Runner, Protocol):
    """One that can start a step while the step before is still computed. Steps run in the
    order in which they were started, and are landed in it. What a batch holds is read before
    `start` returns; tokens that are `IN_FLIGHT` are those drawn by the step before."""

    def start(self, batch: StepBatch) -> Landing: ...
