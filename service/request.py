"""A request inside the engine: what it holds in each state, and the one way to move.

| state    | holds                                   |
|----------|-----------------------------------------|
| WAITING  | nothing (maybe output, after recompute) |
| RUNNING  | device pages                            |
| SWAPPED  | host pages only                         |
| DRAINING | what steps in flight still touch        |
| DONE     | nothing                                 |

Why a request ended is `service.messages.Finish`, not a state.
"""

from collections.abc import Callable
from enum import Enum

from memory.prefix import KeyChain, Keys, PageKey
from models.batch import RequestId as RowId
from schedulers.interface import RequestId
from service.messages import Receipt, Submit
from service.pauses import Pauses


class State(Enum):
    """Defined by what the request holds."""

    WAITING = "waiting"
    RUNNING = "running"
    SWAPPED = "swapped"
    DRAINING = "draining"
    DONE = "done"


# For what runs once a row: finding a member on its Enum takes 20 times as long (Python 3.11).
WAITING, RUNNING, SWAPPED, DRAINING, DONE = State


class Move(Enum):
    """What may happen to a request."""

    ADMIT = "admit"
    RECOMPUTE = "recompute"
    SWAP_OUT = "swap_out"
    RESUME = "resume"
    END = "end"  # nothing in flight
    DRAIN = "drain"  # ended with a step in flight, or its last token is in it
    SETTLE = "settle"  # that step returned


TRANSITIONS = {
    (State.WAITING, Move.ADMIT): State.RUNNING,
    (State.RUNNING, Move.RECOMPUTE): State.WAITING,
    (State.RUNNING, Move.SWAP_OUT): State.SWAPPED,
    (State.SWAPPED, Move.RESUME): State.RUNNING,
    (State.WAITING, Move.END): State.DONE,
    (State.RUNNING, Move.END): State.DONE,
    (State.SWAPPED, Move.END): State.DONE,
    (State.RUNNING, Move.DRAIN): State.DRAINING,
    (State.SWAPPED, Move.DRAIN): State.DRAINING,
    (State.DRAINING, Move.SETTLE): State.DONE,
}


class IllegalMove(AssertionError):
    """A bug of ours: the message tells the request's story."""


MakeKeys = Callable[[Submit, int], Keys]
"""A new request's page keys, given the page size."""


def keys_of_tokens(submit: Submit, page_size: int) -> Keys:
    """What a request's page keys are made of by default."""
    return KeyChain(submit.namespace, page_size)


class Request:
    """One request. Satisfies `schedulers.interface.RequestView`. `state` is changed by
    `move` alone, `known` and `output_tokens` by `append`: attributes, because the core and
    strategies ask each of them several times a row and step."""

    # It drains with its last token in flight: its end is still to tell. Of the class, because
    # with over 29 attributes of its own each of them is found more slowly (Python 3.11).
    owed = False
    share_tokens = 0  # of the class, too: most requests never run on a strategy's share

    def __init__(self, submit: Submit, page_size: int, keys: MakeKeys = keys_of_tokens) -> None:
        self.id = RequestId(submit.id)
        self.row_id = RowId(submit.id)
        self.submit = submit
        self.priority = submit.priority
        self.tenant = submit.tenant
        self.arrival_s = submit.arrival_s
        self.deadline_s = submit.deadline_s
        self.first_token_deadline_s = submit.first_token_deadline_s
        self.min_tokens = submit.sampling.min_tokens
        self.prompt_tokens = len(submit.prompt)
        self.tokens = list(submit.prompt)  # prompt and output
        self.output: list[int] = []
        self.known = self.prompt_tokens
        self.output_tokens = 0
        self.computed = 0
        self.most_computed = 0
        self.prompt_logprobs_sent = 0
        self.in_flight = 0
        self.admitted_s: float | None = None
        self.cached_tokens = 0
        self.steps = 0
        self.preemptions = 0
        self.recomputed_tokens = 0
        self.swapped_pages = 0
        self.pauses = Pauses()
        self.state = WAITING
        self._chain = keys(submit, page_size)
        self._page_size = page_size
        self._story: tuple[str, ...] = (WAITING.value,)

    @property
    def max_tokens(self) -> int:
        return self.submit.limits.max_tokens

    @property
    def tokens_per_second(self) -> float | None:
        return self.submit.tokens_per_second

    @property
    def cacheable_tokens(self) -> int:
        """How much of the prefix the cache may serve: the last known token is computed in
        any case, and so is every position whose prompt log-probabilities are still owed."""
        if self.submit.sampling.prompt_logprobs is None:
            return self.known - 1
        owed = self.prompt_logprobs_sent < self.prompt_tokens - 1
        return min(self.known - 1, self.prompt_logprobs_sent) if owed else self.known - 1

    def keys(self, tokens: int) -> list[PageKey]:
        """Keys of the full pages within the first `tokens` known tokens."""
        return self._chain.first(tokens // self._page_size, self.tokens)

    def append(self, token: int) -> None:
        """A sampled token becomes known."""
        self.tokens.append(token)
        self.output.append(token)
        self.known += 1
        self.output_tokens += 1

    def forget_last(self) -> None:
        """Undo `append`."""
        self.tokens.pop()
        self.output.pop()
        self.known -= 1
        self.output_tokens -= 1

    def advance(self, tokens: int) -> int:
        """`tokens` more are computed. Returns how many of them had been computed before."""
        before = self.computed
        self.computed = after = before + tokens
        self.steps += 1
        again = 0
        if before < self.most_computed:
            again = min(after, self.most_computed) - before
            self.recomputed_tokens += again
        if after > self.most_computed:
            self.most_computed = after
            if self.prompt_logprobs_sent < self.prompt_tokens - 1:
                self.prompt_logprobs_sent = min(after, self.prompt_tokens - 1)
        return again

    def move(self, move: Move) -> None:
        """Change state, or raise IllegalMove."""
        to = TRANSITIONS.get((self.state, move))
        if to is None:
            story = " > ".join(self._story)
            raise IllegalMove(f"request {self.id} cannot {move.value}; so far {story}")
        self.state = to
        self._story = (*self._story[-15:], to.value)

    def receipt(self, now_s: float) -> Receipt:
        """What was done to the request."""
        started_s = now_s if self.admitted_s is None else self.admitted_s
        return Receipt(
            queue_s=max(0.0, started_s - self.arrival_s),
            cached_tokens=self.cached_tokens,
            steps=self.steps,
            preemptions=self.preemptions,
            recomputed_tokens=self.recomputed_tokens,
            swapped_pages=self.swapped_pages,
            paused_s=self.pauses.total_s(now_s - self.arrival_s),
            pauses=self.pauses.first,
            share_tokens=self.share_tokens,
        )
