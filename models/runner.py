"""Runs steps of a Llama-family model on a CPU: rows in, next tokens out."""

import time
from dataclasses import replace

import torch
from torch import Tensor

from memory.attention.interface import AttentionBackend
from models.ahead import Drawn
from models.batch import Landed, Landing, Row, RowResult, StepBatch, StepResult, TokenLogprob
from models.layers import HEAD_ROWS
from models.page_tables import PageTables
from models.sampling import Sampler, UndrawableError, first_argmax, prompt_logprobs
from models.shard import Model
from models.step_inputs import StepInputs, step_inputs
from models.wanted import Results, Wanted, split, wanted


class TorchRunner:
    """`models.batch.AheadRunner` on torch, where there is nobody to compute beside: a step is
    over when `start` returns. What it raises ends the step's own rows; a row without a
    distribution (NaN in it), or with a token the model does not have, fails alone."""

    def __init__(self, model: Model, attention: AttentionBackend) -> None:
        self._model = model
        self._attention = attention
        self._drawn = Drawn()
        self._sampler = Sampler()
        self._tables = PageTables()

    def start(self, batch: StepBatch) -> Landing:
        rows = self._drawn.resolved(batch.rows)
        result = self._computed(replace(batch, rows=rows))
        self._drawn.remember(rows, result.rows)
        return Landed(result)

    def step(self, batch: StepBatch) -> StepResult:
        """Copy pages, compute the rows, sample."""
        return self.start(batch)()

    def _computed(self, batch: StepBatch) -> StepResult:
        started_s = time.perf_counter()
        with torch.inference_mode():
            copy_s = self._copy_s(batch) if batch.swap_out or batch.swap_in else 0.0
            copied_s = started_s + copy_s
            rows, results = split(batch.rows, self._model.vocab_size)
            if not rows:
                return StepResult(results, time.perf_counter() - copied_s, copy_s=copy_s)
            inputs = step_inputs(rows, self._attention.spec.page_size, kept=self._tables)
            asked = wanted(inputs.rows)
            hidden = self._hidden(inputs, asked)
            logits = self._model.logits(hidden[: len(asked.draws)])
            computed_s = time.perf_counter()
            results |= self._sampled(inputs, asked, hidden, logits)
        sample_s = time.perf_counter() - computed_s
        return StepResult(results, computed_s - copied_s, sample_s, copy_s)

    def _copy_s(self, batch: StepBatch) -> float:
        """Copy pages; how long that took."""
        if batch.swap_out:
            self._attention.copy_out(batch.swap_out)
        if batch.swap_in:
            self._attention.copy_in(batch.swap_in)
        return self._attention.take_copy_s()

    def _hidden(self, inputs: StepInputs, asked: Wanted) -> Tensor:
        places = torch.tensor(asked.places(inputs), dtype=torch.int64)
        self._attention.plan(inputs.meta)
        return self._model.hidden(inputs.tokens, inputs.positions, places)

    def _sampled(
        self, inputs: StepInputs, asked: Wanted, hidden: Tensor, logits: Tensor
    ) -> Results:
        results: Results = {row.request: RowResult() for row in inputs.rows}
        rows = [inputs.rows[i] for i in asked.draws]
        for row, result in zip(
            rows, self._sampler.choose(logits, rows, self._argmax) if rows else (), strict=True
        ):
            results[row.request] = result
        at = len(rows)
        for i, count in asked.scores:
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
