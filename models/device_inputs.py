"""Moves what the layers need of a step to the device, without waiting for it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.batch import IN_FLIGHT
from models.device_previous import Previous
from models.step_inputs import StepInputs
from models.transfers import upload


@dataclass(frozen=True, slots=True)
class DeviceInputs:
    """int64 on the device: `tokens` and their `positions`; `places` names the tokens whose
    hidden states are wanted."""

    tokens: Tensor
    positions: Tensor
    places: Tensor


def moved(
    inputs: StepInputs, places: Sequence[int], previous: Previous, device: torch.device
) -> DeviceInputs:
    """One copy, then a gather for the tokens that are in flight, all of which are in
    `previous`."""
    flying = [i for i, row in enumerate(inputs.rows) if row.tokens[-1] == IN_FLIGHT]
    tokens, positions, wanted, into, drawn = upload(
        device,
        inputs.tokens.numpy(),
        inputs.positions.numpy(),
        np.array(places, np.int64),
        np.array([inputs.ends[i] - 1 for i in flying], np.int64),
        np.array([previous.places[inputs.rows[i].request] for i in flying], np.int64),
    )
    if flying:
        # A row without a distribution drew -1. It failed, and any token will do.
        found = previous.tokens.index_select(0, drawn).clamp_(min=0)
        tokens.index_copy_(0, into, found)
    return DeviceInputs(tokens, positions, wanted)
