"""Step costs from timed steps: least squares of relative errors, no cost below zero."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from bench.simulation.costs import StepModel
from bench.simulation.probes import Timing

Matrix = NDArray[np.float64]
COSTS = ("fixed_s", "token_s", "row_s", "context_token_s", "pair_s", "page_s", "weights_s")
TIE = 1e-9


def fit(timings: Sequence[Timing]) -> StepModel:
    """The costs that explain the timings best. A cost that no timing tells is 0, and so is
    the time for the weights where arithmetic hides behind nothing."""
    best, least = StepModel(0, 0, 0, 0, 0, 0), float("inf")
    for hiding in sorted({0, *map(_tokens, timings)}):
        for model in _models(timings, hiding):
            error = sum(error**2 for error in relative_errors(model, timings))
            if error < least - TIE:
                best, least = model, error
    return best


def relative_errors(model: StepModel, timings: Sequence[Timing]) -> list[float]:
    """Of each timing: how far the model is off, as a share of what was measured."""
    return [model.seconds(timing.work) / timing.seconds - 1 for timing in timings]


def _models(timings: Sequence[Timing], hiding: int) -> Iterator[StepModel]:
    """If the arithmetic of up to `hiding` tokens hides behind reading the weights: of the few
    costs each set that may be above zero is tried. Exact, and no loop to tune."""
    features: Matrix = np.array([_features(timing, hiding) for timing in timings], float)
    features /= np.array([[timing.seconds] for timing in timings])
    ones = np.ones(len(timings))
    for count in range(1, len(COSTS) + 1):
        for chosen in map(list, combinations(range(len(COSTS)), count)):
            costs = np.zeros(len(COSTS))
            costs[chosen] = np.linalg.lstsq(features[:, chosen], ones, rcond=None)[0]
            if (costs >= 0).all():
                yield StepModel(**dict(zip(COSTS, map(float, costs), strict=True)))


def _features(timing: Timing, hiding: int) -> tuple[float, ...]:
    """What each of COSTS counts in a step."""
    work, tokens = timing.work, _tokens(timing)
    hidden = 0 < tokens <= hiding
    arithmetic = (0, 0) if hidden else (work.prefill_tokens, work.rows)
    return (tokens > 0, *arithmetic, work.context_tokens, work.pairs, work.pages, hidden)


def _tokens(timing: Timing) -> int:
    return timing.work.prefill_tokens + timing.work.rows
