"""Step costs from timed steps: least squares of relative errors, no cost below zero."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from bench.simulation.costs import StepModel
from bench.simulation.probes import Timing

COSTS = ("fixed_s", "token_s", "row_s", "context_token_s", "pair_s", "page_s")


def fit(timings: Sequence[Timing]) -> StepModel:
    """The costs that explain the timings best. A cost that no timing tells is 0."""
    features = np.array([_features(timing) for timing in timings], dtype=float)
    weighted = features / np.array([[timing.seconds] for timing in timings])
    best, least = np.zeros(len(COSTS)), float("inf")
    # Of the few costs each set that may be above zero is tried: exact, and no loop to tune.
    for count in range(1, len(COSTS) + 1):
        for chosen in combinations(range(len(COSTS)), count):
            costs = np.zeros(len(COSTS))
            costs[list(chosen)] = np.linalg.lstsq(
                weighted[:, chosen], np.ones(len(timings)), rcond=None
            )[0]
            error = float(np.square(weighted @ costs - 1).sum())
            if (costs >= 0).all() and error < least:
                best, least = costs, error
    return StepModel(**dict(zip(COSTS, map(float, best), strict=True)))


def relative_errors(model: StepModel, timings: Sequence[Timing]) -> list[float]:
    """Of each timing: how far the model is off, as a share of what was measured."""
    return [model.seconds(timing.work) / timing.seconds - 1 for timing in timings]


def _features(timing: Timing) -> tuple[float, ...]:
    work = timing.work
    computes = bool(work.rows or work.prefill_tokens)
    return (
        computes,
        work.prefill_tokens,
        work.rows,
        work.context_tokens,
        work.pairs,
        work.pages,
    )
