"""What a step costs: its work counted, and seconds for the work."""

from dataclasses import dataclass

from models.batch import StepBatch


@dataclass(slots=True)
class Work:
    """What a step does. A row of one token is a decode row, any other is prefill.

    `context_tokens` are those whose keys and values the decode rows read, `pairs` are those
    of a prefill token and one that it attends to, `pages` are moved to or from the host.
    """

    prefill_tokens: int = 0
    rows: int = 0
    context_tokens: int = 0
    pairs: int = 0
    pages: int = 0

    def add(self, start: int, tokens: int) -> None:
        """A row that computes `tokens` at positions from `start` on."""
        if tokens == 1:
            self.rows += 1
            self.context_tokens += start + 1
        else:
            self.prefill_tokens += tokens
            self.pairs += tokens * start + tokens * (tokens + 1) // 2


def work_of(batch: StepBatch) -> Work:
    """What the step does."""
    work = Work(pages=len(batch.swap_out) + len(batch.swap_in))
    for row in batch.rows:
        work.add(row.start, len(row.tokens))
    return work


@dataclass(frozen=True, slots=True)
class StepModel:
    """Seconds: for every step that computes, for a prefill token, a decode row, a token of a
    decode row's context, a pair (see `Work`), a page moved.

    `weights_s` is the time to read the weights once: arithmetic on tokens hides behind it, up
    to that time. 0 where none does. `link_token_s` is what devices send each other of a
    token, which hides behind nothing. `eager_s` is what a step with prefill takes beyond
    `fixed_s`, because no graph replays it.
    """

    fixed_s: float
    token_s: float
    row_s: float
    context_token_s: float
    pair_s: float
    page_s: float
    weights_s: float = 0.0
    link_token_s: float = 0.0
    eager_s: float = 0.0

    def seconds(self, work: Work) -> float:
        """How long a step takes; one that only moves pages has no fixed cost."""
        moving_s = work.pages * self.page_s
        if not (work.rows or work.prefill_tokens):
            return moving_s
        arithmetic_s = work.prefill_tokens * self.token_s + work.rows * self.row_s
        attention_s = work.context_tokens * self.context_token_s + work.pairs * self.pair_s
        sent_s = (work.prefill_tokens + work.rows) * self.link_token_s
        computing_s = max(self.weights_s, arithmetic_s) + attention_s
        launching_s = self.fixed_s + (self.eager_s if work.prefill_tokens else 0.0)
        return launching_s + computing_s + sent_s + moving_s

    def alone_s(self, prompt_tokens: int, output_tokens: int) -> float:
        """How long a request takes that has the engine to itself, its prompt in one step."""
        prefill, decode = Work(), Work()
        prefill.add(0, prompt_tokens)
        decode.add(prompt_tokens + output_tokens // 2, 1)
        return self.seconds(prefill) + (output_tokens - 1) * self.seconds(decode)
