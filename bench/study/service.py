"""Who was served how much, and when: tokens of classes of requests over time."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from bench.simulation.record import Record

BINS = 200
SLICES = 10
OUTPUT_WEIGHT = 2.0  # an output token costs twice a prompt token, as with `fair` and VTC
WARM = 0.1  # of the time of arrivals, after which all tenants have requests waiting


def least_share(records: Sequence[Record], some: Sequence[Record]) -> float:
    """The least share that some requests had in the tokens served in a slice of the time of
    arrivals. Slices in which nothing was served do not count."""
    until_s = max(record.at_s for record in records)
    whole, part = (_served(one, until_s, SLICES, 1.0) for one in (records, some))
    return min((p / w for p, w in zip(part, whole, strict=True) if w), default=0.0)


def service_difference(tenants: Mapping[str, Sequence[Record]]) -> float | None:
    """How far the services of two tenants drift apart at most while requests arrive, weighed
    tokens: the largest difference, over any stretch of time, of what the two got in it. None
    where there are not two. It says nothing where one of them asks for less than its share."""
    if len(tenants) != 2:
        return None
    until_s = max(record.at_s for records in tenants.values() for record in records)
    one, other = (_served(found, until_s, BINS, OUTPUT_WEIGHT) for found in tenants.values())
    apart = list(accumulate(a - b for a, b in zip(one, other, strict=True)))
    apart = apart[int(WARM * BINS) :]
    return max(apart) - min(apart)


def _served(
    records: Sequence[Record], until_s: float, bins: int, output_weight: float
) -> list[float]:
    """Tokens in each of `bins` stretches of time: a prompt evenly from when it was admitted to
    the first token, output from then to the last."""
    width_s = max(until_s / bins, 1e-9)
    tokens = [0.0] * bins
    for record in records:
        if record.first_s is None:
            continue
        first_s, prompt = record.first_s, record.demand.arrival.prompt_tokens
        admitted_s = first_s if record.queue_s is None else record.at_s + record.queue_s
        _spread(tokens, prompt, admitted_s / width_s, first_s / width_s)
        output = output_weight * record.tokens
        _spread(tokens, output, first_s / width_s, record.last_s / width_s)
    return tokens


def _spread(tokens: list[float], amount: float, begin: float, end: float) -> None:
    """Evenly over bins, of which those behind the last are lost."""
    first, last = int(begin), int(end)
    for index in range(first, min(last + 1, len(tokens))):
        tokens[index] += amount / (last - first + 1)
