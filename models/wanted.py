"""Which rows of a step can be computed, and what is wanted of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from models.batch import RequestId, Row, RowResult
from models.step_inputs import StepInputs

Results = dict[RequestId, RowResult]


def split(rows: Sequence[Row], vocab_size: int) -> tuple[list[Row], Results]:
    """The rows that can be computed, and the results of the others: a tokenizer may know
    more tokens than the model."""
    good, results = list[Row](), Results()
    for row in rows:
        worst = max(row.tokens)
        if worst < vocab_size:
            good.append(row)
        else:
            fault = f"token id {worst} is outside the model's vocabulary of {vocab_size}"
            results[row.request] = RowResult(error=fault)
    return good, results


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows (by their place in the step) draw a token, and which have how many of
    their first positions scored."""

    draws: tuple[int, ...]
    scores: tuple[tuple[int, int], ...]

    def places(self, inputs: StepInputs) -> list[int]:
        """Where in the step the hidden states are that this takes, draws first."""
        places = [inputs.ends[i] - 1 for i in self.draws]
        for i, count in self.scores:
            first = inputs.ends[i] - len(inputs.rows[i].tokens)
            places.extend(range(first, first + count))
        return places


def wanted(rows: Sequence[Row]) -> Wanted:
    """Of rows in computing order."""
    draws = tuple(i for i, row in enumerate(rows) if row.samples)
    counts = ((i, _scorable(row)) for i, row in enumerate(rows))
    return Wanted(draws, tuple((i, count) for i, count in counts if count > 0))


def _scorable(row: Row) -> int:
    """Computed positions whose successor is a prompt token, where these are wanted."""
    if row.sampling.prompt_logprobs is None:
        return 0
    return min(len(row.tokens), len(row.prompt) - 1 - row.start)
