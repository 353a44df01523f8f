"""Whether two runs of the same strategies come to the same order."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isnan

CLOSE = {"_per_s": (0.05, 0.0), "_share": (0.0, 0.03), "_s": (0.1, 0.05)}
"""What is no difference to speak of, by unit: as a share of the larger, and at least."""


@dataclass(frozen=True, slots=True)
class Order:
    """Pairs of strategies: in how many real and simulated agree which of the two has more,
    in how many not, and in how many one of them finds no difference to speak of."""

    same: int = 0
    other: int = 0
    close: int = 0

    def __str__(self) -> str:
        pairs = self.same + self.other + self.close
        close = f", {self.close} close" if self.close else ""
        verdict = "NO" if self.other else "yes" if self.same else "-"
        return f"{verdict}: {self.same} of {pairs}{close}"


def order(name: str, real: Sequence[float], simulated: Sequence[float]) -> Order:
    """Compare a figure of the same strategies. A latency that is not a number counts as more
    than every other: no request was answered."""
    same = other = close = 0
    for one, two in combinations(range(len(real)), 2):
        found = _sign(name, real[one], real[two]), _sign(name, simulated[one], simulated[two])
        if 0 in found:
            close += 1
        elif found[0] == found[1]:
            same += 1
        else:
            other += 1
    return Order(same, other, close)


def _sign(name: str, one: float, two: float) -> int:
    if isnan(one) or isnan(two):
        return isnan(one) - isnan(two)
    relative, least = next(close for end, close in CLOSE.items() if name.endswith(end))
    if abs(one - two) <= max(least, relative * max(abs(one), abs(two))):
        return 0
    return 1 if one > two else -1
