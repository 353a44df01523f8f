"""When requests arrive: in a recorded trace's bursts, and in a day's rise and fall."""

import random
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import accumulate, islice, pairwise
from math import pi, sin

from bench.trace import SAMPLE, read_trace

SWING = 0.5  # of the mean rate, by which the rate falls short of it at first and at last
STRETCH = 10  # gaps of the trace that stay together
STEPS = 1000


def patterned(count: int, rate_per_s: float, seed: int) -> list[float]:
    """`count` moments with this mean rate, seconds, ascending. Stretches of the sample trace's
    gaps, drawn at random, make the bursts. The rate is half of the mean at the beginning and
    at the end, and one and a half times the mean in the middle."""
    gaps = list(islice(_gaps(random.Random(f"pattern {seed}")), count))
    whole = sum(gaps)
    span_s = count / rate_per_s
    return [span_s * _warped(part / whole) for part in accumulate(gaps)]


def _gaps(draw: random.Random) -> Iterator[float]:
    recorded = _recorded()
    while True:
        first = draw.randrange(len(recorded) - STRETCH)
        yield from recorded[first : first + STRETCH]


@cache
def _recorded() -> list[float]:
    times = [arrival.at_s for arrival in read_trace(SAMPLE)]
    return [after - before for before, after in pairwise(times)]


def _warped(part: float) -> float:
    """The part of the time by which this part of the requests has come."""
    arrived = _arrived()
    at = min(bisect_right(arrived, part), STEPS)
    before, after = arrived[at - 1 : at + 1]
    return (at - 1 + min(1.0, (part - before) / (after - before))) / STEPS


@cache
def _arrived() -> list[float]:
    """The part of the requests that has come by each of STEPS moments."""
    return [
        t - SWING * sin(2 * pi * t) / (2 * pi) for t in (n / STEPS for n in range(STEPS + 1))
    ]
