"""Bias, penalties and the mask of stop ids on logits that lie on a device."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.batch import Row
from models.device_counts import IN_PROMPT, Counts, Known, flat, inside
from models.device_previous import Previous
from models.edits import Bias, bias_of, counts, is_edited, masks_stops, repeats
from models.kept import Kept
from models.transfers import upload


class DeviceEdits:
    """Keeps between steps what requests repeat at each. Nothing depends on it but time."""

    def __init__(self) -> None:
        self._counts = Counts()
        self._biases = Kept(bias_of)

    def of(
        self, rows: Sequence[Row], like: Tensor, previous: Previous | None
    ) -> "StepEdits | None":
        """Those of a step, None where no row is edited; call once a step. `like` [_, V] is on
        the device. Raises IndexError for a token outside the vocabulary, and KeyError for one
        in flight that the step before did not draw."""
        if not any(map(is_edited, rows)):
            return None
        biased = [i for i, row in enumerate(rows) if row.sampling.logit_bias]
        penal = [
            i for i, row in enumerate(rows) if repeats(row.sampling) or counts(row.sampling)
        ]
        biases = self._biases.of([rows[i] for i in biased])
        known = self._counts.known([rows[i] for i in penal], like, previous) if penal else None
        lines = {row: line for line, row in enumerate(penal)}
        return StepEdits(rows, dict(zip(biased, biases, strict=True)), known, lines)


@dataclass(frozen=True, slots=True)
class StepEdits:
    """Of the rows of a step, by their place in it; `lines` says which of `known` is whose."""

    rows: Sequence[Row]
    biases: dict[int, Bias]
    known: Known | None
    lines: dict[int, int]

    def apply(self, logits: Tensor, places: Sequence[int]) -> None:
        """Change the logits float32 [places, V] of some rows: bias; repetition penalty (prompt
        and output); frequency and presence penalties (output); stop ids masked before
        `min_tokens`."""
        self._add_bias(logits, places)
        self._repel(logits, places)
        self._penalise(logits, places)
        self._mask_stops(logits, places)

    def _add_bias(self, logits: Tensor, places: Sequence[int]) -> None:
        biased = [(line, self.biases[i]) for line, i in enumerate(places) if i in self.biases]
        if not biased:
            return
        ids = np.concatenate([bias.ids for _, bias in biased])
        inside(ids, logits.shape[1])
        starts = np.array([line * logits.shape[1] for line, _ in biased], np.int64)
        at, added = upload(
            logits.device,
            ids + np.repeat(starts, [len(bias.ids) for _, bias in biased]),
            np.concatenate([bias.added for _, bias in biased]),
        )
        cells = logits.view(-1)
        cells.index_copy_(0, at, cells.index_select(0, at) + added.float())

    def _repel(self, logits: Tensor, places: Sequence[int]) -> None:
        lines = [line for line, i in enumerate(places) if repeats(self.rows[i].sampling)]
        if not lines:
            return
        found = [self.rows[places[line]].sampling for line in lines]
        where, strength = upload(
            logits.device,
            np.array(lines, np.int64),
            np.array([s.repetition_penalty for s in found], np.float64),
        )
        penalty = strength.float()[:, None]
        values = logits.index_select(0, where)
        seen = self._known([places[line] for line in lines]) > 0
        raised = (values / penalty).clamp_(max=torch.finfo(torch.float32).max)
        changed = torch.where(values > 0, raised, values * penalty)
        logits.index_copy_(0, where, torch.where(seen, changed, values))

    def _penalise(self, logits: Tensor, places: Sequence[int]) -> None:
        lines = [line for line, i in enumerate(places) if counts(self.rows[i].sampling)]
        if not lines:
            return
        found = [self.rows[places[line]].sampling for line in lines]
        where, frequency, presence = upload(
            logits.device,
            np.array(lines, np.int64),
            np.array([s.frequency_penalty for s in found], np.float64),
            np.array([s.presence_penalty for s in found], np.float64),
        )
        values = logits.index_select(0, where)
        often = self._known([places[line] for line in lines]) & (IN_PROMPT - 1)
        penalties = (often * frequency[:, None]).add_(presence[:, None]).float()
        logits.index_copy_(0, where, torch.where(often > 0, values - penalties, values))

    def _known(self, places: Sequence[int]) -> Tensor:
        assert self.known is not None, "a row with a penalty was counted"
        return self.known.of([self.lines[i] for i in places])

    def _mask_stops(self, logits: Tensor, places: Sequence[int]) -> None:
        rows = [self.rows[i] for i in places]
        stops = [row.sampling.stop_ids if masks_stops(row) else () for row in rows]
        if any(stops):
            (at,) = upload(logits.device, flat(stops, range(len(rows)), logits.shape[1]))
            logits.view(-1).index_fill_(0, at, -torch.inf)
