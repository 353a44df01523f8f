"""What clients saw of their requests, and the figures that sum it up.

Standard library only, so that a peer's interpreter can use it too.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Answer:
    """One request as its client saw it, in seconds from the start of the run.

    `arrivals` has one (time, tokens) for each message that brought tokens. `status` is OK
    or the name of the gRPC status it ended with.
    """

    due_s: float
    sent_s: float
    ended_s: float
    prompt_tokens: int
    arrivals: tuple[tuple[float, int], ...] = ()
    status: str = "OK"

    @property
    def output_tokens(self) -> int:
        return sum(tokens for _, tokens in self.arrivals)

    @property
    def ttft_s(self) -> float | None:
        """Time to first token, from when the request was due: a late client is no excuse."""
        return self.arrivals[0][0] - self.due_s if self.arrivals else None

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first message; None when that was all."""
        later = sum(tokens for _, tokens in self.arrivals[1:])
        return (self.arrivals[-1][0] - self.arrivals[0][0]) / later if later else None

    @property
    def total_s(self) -> float:
        """Time until the whole answer was there, from when the request was due."""
        return self.ended_s - self.due_s

    @property
    def gaps_s(self) -> list[float]:
        """Times between messages."""
        times = [time for time, _ in self.arrivals]
        return [after - before for before, after in pairwise(times)]


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles, seconds."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in figures. Latencies are of requests that were answered, and None when none
    has such a time; `statuses` counts how requests ended."""

    statuses: dict[str, int]
    wall_s: float
    output_tokens: int
    output_tokens_per_s: float
    ttft_s: Spread | None
    tpot_s: Spread | None
    gap_s: Spread | None
    total_s: Spread | None

    @property
    def failed(self) -> int:
        """Requests that did not end OK."""
        return sum(count for status, count in self.statuses.items() if status != "OK")


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear interpolation between the two nearest ranks, as numpy's default. Raises
    ValueError for an empty sample."""
    if not values:
        raise ValueError("no values to take a percentile of")
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


def summarise(answers: Sequence[Answer]) -> Summary:
    """The figures of one run, which lasts until its last request ended."""
    answered = [answer for answer in answers if answer.status == "OK"]
    wall_s = max((answer.ended_s for answer in answers), default=0.0)
    output_tokens = sum(answer.output_tokens for answer in answers)
    return Summary(
        statuses=dict(Counter(answer.status for answer in answers)),
        wall_s=wall_s,
        output_tokens=output_tokens,
        output_tokens_per_s=output_tokens / wall_s if wall_s else 0.0,
        ttft_s=spread([answer.ttft_s for answer in answered]),
        tpot_s=spread([answer.tpot_s for answer in answered]),
        gap_s=spread([gap for answer in answered for gap in answer.gaps_s]),
        total_s=spread([answer.total_s for answer in answered]),
    )


def spread(found: Sequence[float | None]) -> Spread | None:
    """The percentiles of what is there; None when nothing is."""
    values = [value for value in found if value is not None]
    if not values:
        return None
    return Spread(*(percentile(values, percent) for percent in (50, 95, 99)))
