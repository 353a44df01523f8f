"""How much a service does of a mix when it always has enough to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.overload.asks import Ask, Mix
from bench.overload.client import Reply, at_most
from bench.service_process import Running

REQUESTS = 64
CLIENTS = 32


@dataclass(frozen=True, slots=True)
class Capacity:
    """Requests of the mix a second, and the median time such a request takes from its first
    step to its end among as many others as there is room for."""

    requests_per_s: float
    served_s: float


async def measured(running: Running, mix: Mix, seed: int) -> Capacity:
    """Keep a service busy with a few dozen requests."""
    asks = [Ask("capacity", job, salt="capacity") for job in mix.jobs(REQUESTS, seed)]
    return capacity(await at_most(running.target, asks, CLIENTS))


def capacity(replies: Sequence[Reply]) -> Capacity:
    """From a closed loop. Tokens are counted from the first end on, when the batch has
    filled up, to the last sending, after which it empties. Raises ValueError when a request
    failed."""
    if failed := {r.answer.status for r in replies if not r.done}:
        raise ValueError(f"requests failed while the capacity was measured: {failed}")
    from_s = min(reply.answer.ended_s for reply in replies)
    until_s = max(reply.answer.sent_s for reply in replies)
    arrivals = [one for reply in replies for one in reply.answer.arrivals]
    if until_s <= from_s:
        raise ValueError("too few requests to measure a capacity with")
    tokens = sum(tokens for at_s, tokens in arrivals if from_s < at_s <= until_s)
    mean = sum(tokens for _, tokens in arrivals) / len(replies)
    served = median(reply.total_s - (reply.queue_s or 0.0) for reply in replies)
    return Capacity(tokens / (until_s - from_s) / mean, served)
