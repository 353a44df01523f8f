"""The largest step there can be, run before the pool exists: what it takes of a
device's memory is not the pool's."""

from dataclasses import dataclass, replace

from models.batch import RequestId, Row, Runner, Sampling, StepBatch

_SELECTED = Sampling(
    temperature=1.0,
    top_k=50,
    top_p=0.9,
    min_p=0.01,
    repetition_penalty=1.1,
    frequency_penalty=0.1,
    logprobs=20,
    prompt_logprobs=20,
)
_SORTED = replace(_SELECTED, top_k=0)
"""Without top-k, top-p sorts all of the vocabulary, which takes more memory."""


@dataclass(frozen=True, slots=True)
class StepSize:
    """What a step holds at most: rows, and tokens of all of them."""

    rows: int
    tokens: int


def run_trial(runner: Runner, most: StepSize, page_size: int, context_tokens: int) -> None:
    """Compute, sample and score as many rows and tokens as a step can have, all in page 0:
    a pool of that page will do; once for each way to sample, since rows that are sampled
    alike are so at once. What the rows bring means nothing."""
    share, rest = divmod(most.tokens, most.rows)
    lengths = [share + (i < rest) for i in range(most.rows)]
    for way in (_SELECTED, _SORTED):
        rows = [
            _row(i, min(length, context_tokens), page_size, way)
            for i, length in enumerate(lengths)
        ]
        runner.step(StepBatch(rows))


def _row(i: int, length: int, page_size: int, way: Sampling) -> Row:
    tokens = [0] * length
    pages = [0] * -(-length // page_size)
    return Row(RequestId(i), tokens, 0, pages, True, way, tokens, [])
