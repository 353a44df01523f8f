"""Runs steps of a Llama-family model on a GPU, without waiting for it between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from memory.attention.interface import AttentionBackend
from models.batch import IN_FLIGHT, Landing, Row, RowResult, StepBatch, StepResult, TokenLogprob
from models.device_edits import DeviceEdits
from models.device_faults import device_faults
from models.device_inputs import moved
from models.device_previous import Previous
from models.device_sampling import Scores, draw, prompt_logprobs
from models.graphs import DecodeGraphs
from models.layers import HEAD_ROWS
from models.marks import Mark
from models.page_tables import PageTables
from models.sampling import UndrawableError
from models.second_try import second_try
from models.shard import Model
from models.step_inputs import StepInputs, step_inputs
from models.wanted import Results, Wanted, split, wanted

Outcome = Callable[[], Results]


class DeviceRunner:
    """`models.batch.AheadRunner` on one device. `start` gives the device its work: nothing in
    it waits, and tokens in flight are taken from where the step before left them. `graphs`,
    captured, compute the steps in which every row decodes.

    What it raises ends the step's own rows, but for DeviceLost; a row without a distribution
    (NaN in it), or with a token the model does not have, fails alone. Runs on the device
    `cpu` too, where a step is over when `start` returns.

    `alone`: no other rank is told of steps. Then one that runs out of memory is computed once
    more. Its rows write the same keys and values to the same slots again, a draw depends on
    seed and position, and tokens are counted up to a number of outputs. Copies of pages are
    not repeated: the rows may have written to pages that were copied out."""

    def __init__(
        self,
        model: Model,
        attention: AttentionBackend,
        graphs: DecodeGraphs | None = None,
        alone: bool = True,
    ) -> None:
        self._model = model
        self._attention = attention
        self._graphs = graphs
        self._alone = alone
        self._device = torch.device(attention.spec.device)
        self._edits = DeviceEdits()
        self._tables = PageTables()
        self._previous = self._nothing = Previous(
            torch.zeros(0, dtype=torch.int64, device=self._device), {}
        )

    def step(self, batch: StepBatch) -> StepResult:
        """A step by itself."""
        return self.start(batch)()

    def start(self, batch: StepBatch) -> Landing:
        with torch.inference_mode(), device_faults(self._device):
            previous, self._previous = self._previous, self._nothing
            self._copy(batch)
            began = self._mark()
            followed, refused = _followed(batch.rows, previous)
            rows, others = split(followed, self._model.vocab_size)
            refused |= others
            launch = partial(self._launched, rows, previous)
            again: str | None = None
            if not rows:
                started = _Started(began, dict)
            elif self._alone:
                started, again = second_try(launch)
            else:
                started = launch()
            done = self._mark()
        copies = bool(batch.swap_out or batch.swap_in)

        def land() -> StepResult:
            with device_faults(self._device):
                done.wait()
                # Those still under way are told with later ones: nobody waits for them.
                copy_s = self._attention.take_copy_s() if copies else 0.0
                results = refused | started.outcome()
                model_s = started.computed.since_s(began)
                sample_s = done.since_s(started.computed)
                return StepResult(results, model_s, sample_s, copy_s, again)

        return land

    def _mark(self) -> Mark:
        return Mark(self._device)

    def _copy(self, batch: StepBatch) -> None:
        if batch.swap_out:
            self._attention.copy_out(batch.swap_out)
        if batch.swap_in:
            self._attention.copy_in(batch.swap_in)

    def _launched(self, rows: Sequence[Row], previous: Previous) -> "_Started":
        size = self._graph_size(rows)
        inputs = step_inputs(rows, self._attention.spec.page_size, size, self._tables)
        asked = wanted(inputs.rows)
        hidden = None
        if self._graphs is not None and size is not None:
            logits = self._replayed(self._graphs, size, inputs, previous)
        else:
            hidden = self._hidden(inputs, asked, previous)
            logits = self._model.logits(hidden[: len(asked.draws)])
        computed = self._mark()
        drawn = self._drawn(inputs, asked, logits, previous)
        if hidden is None:
            return _Started(computed, drawn)
        scores = self._scores(inputs, asked, hidden[len(asked.draws) :])
        return _Started(computed, lambda: _scored(drawn(), scores))

    def _graph_size(self, rows: Sequence[Row]) -> int | None:
        """Of the graph that computes the step, if one does."""
        if self._graphs is None or not all(_decodes(row) for row in rows):
            return None
        return self._graphs.size(len(rows))

    def _replayed(
        self, graphs: DecodeGraphs, size: int, inputs: StepInputs, previous: Previous
    ) -> Tensor:
        at = moved(inputs, (), previous, self._device)
        graphs.load(size, at.tokens, at.positions)
        self._attention.plan(inputs.meta)
        return graphs.replay(size)[: len(inputs.rows)]

    def _hidden(self, inputs: StepInputs, asked: Wanted, previous: Previous) -> Tensor:
        at = moved(inputs, asked.places(inputs), previous, self._device)
        self._attention.plan(inputs.meta)
        return self._model.hidden(at.tokens, at.positions, at.places)

    def _drawn(
        self, inputs: StepInputs, asked: Wanted, logits: Tensor, previous: Previous
    ) -> Outcome:
        """Draw, and leave what was drawn for the next step."""
        chunks: Results = {row.request: RowResult() for row in inputs.rows}
        rows = [inputs.rows[i] for i in asked.draws]
        if not rows:
            return lambda: chunks
        drawn = draw(logits, rows, previous, self._edits)
        places = {row.request: place for place, row in enumerate(rows)}
        self._previous = Previous(drawn.tokens, places)
        fetched = drawn.fetch()
        return lambda: chunks | dict(zip(places, fetched(), strict=True))

    def _scores(
        self, inputs: StepInputs, asked: Wanted, hidden: Tensor
    ) -> list[tuple[Row, list[Scores]]]:
        """Of the prompt tokens behind `hidden`'s, row by row in blocks."""
        found = []
        parts = torch.split_with_sizes(hidden, [count for _, count in asked.scores])
        for (i, count), part in zip(asked.scores, parts, strict=True):
            row = inputs.rows[i]
            targets = row.prompt[row.start + 1 : row.start + 1 + count]
            most = row.sampling.prompt_logprobs or 0
            blocks = [
                prompt_logprobs(
                    self._model.logits(part[at : at + HEAD_ROWS]),
                    targets[at : at + HEAD_ROWS],
                    most,
                )
                for at in range(0, count, HEAD_ROWS)
            ]
            found.append((row, blocks))
        return found


@dataclass(frozen=True, slots=True)
class _Started:
    """A step that the device was given: when it has the logits, and what waits for the
    results."""

    computed: Mark
    outcome: Outcome


def _followed(rows: Sequence[Row], previous: Previous) -> tuple[list[Row], Results]:
    """The rows but those whose token in flight was never drawn: their request failed in the
    step before, and nobody waits for what they would bring."""
    good, results = list[Row](), Results()
    for row in rows:
        if row.tokens[-1] != IN_FLIGHT or row.request in previous.places:
            good.append(row)
        else:
            results[row.request] = RowResult(error="the step before drew no token")
    return good, results


def _decodes(row: Row) -> bool:
    """No token of the prompt follows such a row, so none is to be scored."""
    return row.samples and len(row.tokens) == 1


def _scored(results: Results, scores: Sequence[tuple[Row, Sequence[Scores]]]) -> Results:
    for row, blocks in scores:
        try:
            found: list[TokenLogprob] = [entry for block in blocks for entry in block()]
        except UndrawableError as error:
            results[row.request] = RowResult(error=str(error))
        else:
            results[row.request] = replace(results[row.request], prompt_logprobs=tuple(found))
    return results
