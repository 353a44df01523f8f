"""Runs steps on a Llama-family model: rows in, next tokens out."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from memory.attention.interface import AttentionBackend
from models.batch import RequestId, Row, RowResult, StepBatch, StepResult, TokenLogprob
from models.layers import HEAD_ROWS
from models.llama import Llama
from models.sampling import UndrawableError, choose, first_argmax, prompt_logprobs
from models.step_inputs import StepInputs, step_inputs

Results = dict[RequestId, RowResult]


class TorchRunner:
    """`models.batch.Runner` on torch. What it raises ends the step's own rows; a row without
    a distribution (NaN in it), or with a token the model does not have (a tokenizer may know
    more of them), fails alone."""

    def __init__(self, model: Llama, attention: AttentionBackend) -> None:
        self._model = model
        self._attention = attention

    def step(self, batch: StepBatch) -> StepResult:
        """Copy pages, compute the rows, sample."""
        started_s = time.perf_counter()
        with torch.inference_mode():
            copied_s = started_s
            if batch.swap_out or batch.swap_in:
                copied_s = self._copied_s(batch)
            copy_s = copied_s - started_s
            rows, results = self._split(batch.rows)
            if not rows:
                return StepResult(results, time.perf_counter() - copied_s, copy_s=copy_s)
            inputs = step_inputs(rows, self._attention.spec.page_size)
            wanted = _wanted(inputs)
            hidden = self._hidden(inputs, wanted)
            logits = self._model.logits(hidden[: len(wanted.draws)])
            computed_s = time.perf_counter()
            results |= self._sampled(inputs, wanted, hidden, logits)
        sample_s = time.perf_counter() - computed_s
        return StepResult(results, computed_s - copied_s, sample_s, copy_s)

    def _copied_s(self, batch: StepBatch) -> float:
        """Copy pages; when that was done."""
        if batch.swap_out:
            self._attention.copy_out(batch.swap_out)
        if batch.swap_in:
            self._attention.copy_in(batch.swap_in)
        return time.perf_counter()

    def _split(self, rows: Sequence[Row]) -> tuple[list[Row], Results]:
        """The rows that can be computed, and the results of the others."""
        size, good = self._model.vocab_size, list[Row]()
        results: Results = {}
        for row in rows:
            worst = max(row.tokens)
            if worst < size:
                good.append(row)
            else:
                fault = f"token id {worst} is outside the model's vocabulary of {size}"
                results[row.request] = RowResult(error=fault)
        return good, results

    def _hidden(self, inputs: StepInputs, wanted: "_Wanted") -> Tensor:
        places = [inputs.ends[i] - 1 for i in wanted.draws]
        for i, count in wanted.scores:
            first = inputs.ends[i] - len(inputs.rows[i].tokens)
            places.extend(range(first, first + count))
        self._attention.plan(inputs.meta)
        return self._model.hidden(
            inputs.tokens, inputs.positions, torch.tensor(places, dtype=torch.int64)
        )

    def _sampled(
        self, inputs: StepInputs, wanted: "_Wanted", hidden: Tensor, logits: Tensor
    ) -> Results:
        results: Results = {row.request: RowResult() for row in inputs.rows}
        rows = [inputs.rows[i] for i in wanted.draws]
        for row, result in zip(
            rows, choose(logits, rows, self._argmax) if rows else (), strict=True
        ):
            results[row.request] = result
        at = len(rows)
        for i, count in wanted.scores:
            row = inputs.rows[i]
            scored = self._scored(row, hidden[at : at + count], results[row.request])
            results[row.request] = scored
            at += count
        return results

    def _argmax(self, logits: Tensor) -> Tensor:
        best = self._attention.ops.argmax(logits)
        faulty = best < 0
        if faulty.any():
            best[faulty] = first_argmax(logits[faulty])
        return best

    def _scored(self, row: Row, hidden: Tensor, result: RowResult) -> RowResult:
        """The result with log-probabilities of the prompt tokens behind `hidden`'s."""
        found: list[TokenLogprob] = []
        targets = row.prompt[row.start + 1 : row.start + 1 + len(hidden)]
        try:
            for at in range(0, len(hidden), HEAD_ROWS):
                logits = self._model.logits(hidden[at : at + HEAD_ROWS])
                found += prompt_logprobs(
                    logits, targets[at : at + HEAD_ROWS], row.sampling.prompt_logprobs or 0
                )
        except UndrawableError as error:
            return RowResult(error=str(error))
        return replace(result, prompt_logprobs=tuple(found))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which rows (by their place in the step) draw a token, and which have how many of
    their first positions scored."""

    draws: tuple[int, ...]
    scores: tuple[tuple[int, int], ...]


def _wanted(inputs: StepInputs) -> _Wanted:
    draws = tuple(i for i, row in enumerate(inputs.rows) if row.samples)
    counts = ((i, _scorable(row)) for i, row in enumerate(inputs.rows))
    return _Wanted(draws, tuple((i, count) for i, count in counts if count > 0))


def _scorable(row: Row) -> int:
    """Computed positions whose successor is a prompt token, where these are wanted."""
    if row.sampling.prompt_logprobs is None:
        return 0
    return min(len(row.tokens), len(row.prompt) - 1 - row.start)
