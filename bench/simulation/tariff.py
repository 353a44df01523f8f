"""Prices of computing a token that no step can undercut.

A step of P prefill tokens and R decode rows takes t(P, R), the reads of the contexts, X, and
the attention of its prefill. Each row pays for its own reads and attention. Of t(P, R) each
prefill token pays `token_s`, and the decode rows share the rest in proportion to their weights:
`row_s` and the read of what the row holds in the pool. So a decode row pays at least
its weight times

    rate(s) = min of (t(P, R) - token_s P) / (row_s R + X) over all steps with t(P, R) + X <= s,

where s is the time of the step, R <= max_rows, P + R <= max_step_tokens, and X counts up to
what reading the whole pool takes. A long step has more rows to share its fixed cost and the
weights, but a request with a deadline cannot have long steps only. The rate is replaced by a
convex line below it, so a request pays least with steps of equal length (Jensen).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bench.simulation.fluid import Floats
from bench.simulation.profile import Profile

SAMPLES = 300
TOKEN_SHARES = (0.3, 0.6, 0.8, 0.85, 0.9, 0.95, 1.0)
ROW_WEIGHTS = (0.1, 1.0, 1000.0)
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Tariff:
    """`token_s` for a prefill token; a decode row pays the rate times `row_s` and the read of
    its context. The rate is `rates` at `step_s`, corners of a convex line below the least,
    and constant after the last."""

    token_s: float
    row_s: float
    step_s: Floats
    rates: Floats

    def rate(self, step_s: Floats) -> Floats:
        """What a decode row pays at least in steps that take so long on average at most."""
        return np.interp(step_s, self.step_s, self.rates)


def tariffs(profile: Profile) -> list[Tariff]:
    """A choice of them: each bounds, and which does best depends on the load."""
    most_s, context_s = _highest_token_s(profile), pool_s(profile) / profile.max_rows
    usual_s = max(context_s, profile.costs.row_s, ROUNDING)
    return [
        tariff(share * most_s, weight * usual_s, profile)
        for share in TOKEN_SHARES
        for weight in ROW_WEIGHTS
    ]


def _highest_token_s(profile: Profile) -> float:
    """The price of a prefill token up to which every step of prefill pays for itself."""
    found = []
    for eager_s, most in _ways(profile):
        prefill = np.arange(1.0, most + 1)
        found.append(float((_seconds(prefill, np.zeros(1), eager_s, profile) / prefill).min()))
    return min(found)


def pool_s(profile: Profile) -> float:
    """How long it takes to read all keys and values that there is room for."""
    tokens = profile.device_pages * profile.page_size
    return tokens * profile.costs.context_token_s


def tariff(token_s: float, row_s: float, profile: Profile) -> Tariff:
    """What decode rows pay at these  On each piece on which t is linear the quotient is
    monotone, so its least is at the corners of the pieces."""
    costs = profile.costs
    rows = np.arange(1.0, min(profile.max_rows, profile.max_step_tokens) + 1)[:, None]
    full = np.full(1, float(profile.max_step_tokens))
    longest_s = _seconds(full, rows[-1], costs.eager_s, profile)[0] + pool_s(profile)
    shortest_s = costs.fixed_s + max(costs.weights_s, costs.row_s) + costs.link_token_s
    step_s = np.geomspace(shortest_s, longest_s, SAMPLES + 1)[None, :]
    least = np.full(step_s.size, np.inf)
    for eager_s, most in _ways(profile):
        for corner in _corners(rows, step_s, eager_s, profile):
            prefill = np.clip(corner, 0.0, np.maximum(0.0, most - rows))
            taken_s = _seconds(prefill, rows, np.where(prefill > 0, eager_s, 0.0), profile)
            read_s = np.minimum(step_s - taken_s, pool_s(profile))
            paid_s = np.maximum(0.0, taken_s - token_s * prefill)
            weight_s = row_s * rows + read_s
            fits = (read_s >= -ROUNDING * step_s) & (weight_s > 0)
            rates = np.divide(paid_s, weight_s, out=np.full(fits.shape, np.inf), where=fits)
            least = np.minimum(least, rates.min(axis=0))
    return Tariff(token_s, row_s, *_below(step_s[0], least))


def _ways(profile: Profile) -> list[tuple[float, int]]:
    """How prefill is launched, and how many tokens may be in such a step: chunks of several
    tokens launch eagerly; chunks of one are rows like any other."""
    most = profile.max_step_tokens
    return [(profile.costs.eager_s, most), (0.0, min(profile.max_rows, most))]


def _corners(
    rows: Floats, step_s: Floats, eager_s: float, profile: Profile
) -> Iterator[Floats]:
    """Prefill tokens where the quotient's pieces meet: none, just one, arithmetic as long as
    the weights take, nothing read, all of the pool read, as many as there may be."""
    costs = profile.costs
    yield np.zeros(1)
    yield np.full(1, ROUNDING)
    yield np.full(1, float(profile.max_step_tokens))
    token_s = _token_s(profile)
    if token_s:
        yield (costs.weights_s - rows * costs.row_s) / token_s
    base_s = costs.fixed_s + eager_s + rows * costs.link_token_s
    shown_s = rows * costs.row_s
    for read_s in (0.0, pool_s(profile)):
        left_s = step_s - read_s - base_s
        if token_s + costs.link_token_s:
            yield (left_s - shown_s) / (token_s + costs.link_token_s)
        if costs.link_token_s:
            yield (left_s - costs.weights_s) / costs.link_token_s


def _token_s(profile: Profile) -> float:
    return min(profile.costs.token_s, profile.costs.row_s)


def _seconds(
    prefill: Floats, rows: Floats, eager_s: Floats | float, profile: Profile
) -> Floats:
    """t(P, R)."""
    costs = profile.costs
    arithmetic_s = prefill * _token_s(profile) + rows * costs.row_s
    sent_s = (prefill + rows) * costs.link_token_s
    found: Floats = costs.fixed_s + eager_s + np.maximum(costs.weights_s, arithmetic_s) + sent_s
    return found


def _below(step_s: Floats, least: Floats) -> tuple[Floats, Floats]:
    """A convex line below a falling function of which there are samples: between two of them
    it is at least the later."""
    falling = np.minimum.accumulate(least)
    ahead = np.append(falling[1:], falling[-1])
    corners: list[int] = []
    for index in range(step_s.size):
        while len(corners) > 1 and not _turns_up(
            step_s, ahead, corners[-2], corners[-1], index
        ):
            corners.pop()
        corners.append(index)
    return step_s[corners], ahead[corners]


def _turns_up(x: Floats, y: Floats, a: int, b: int, c: int) -> bool:
    return bool((y[b] - y[a]) * (x[c] - x[a]) < (y[c] - y[a]) * (x[b] - x[a]))
