"""Puts a load on a service, as its callers would."""

import asyncio
import random

import msgspec

from bench.overload.asks import BYTES, Ask, Mix
from bench.overload.client import at_most, when_due
from bench.overload.counters import Counted, counters
from bench.replay.seen import Seen, from_replies
from bench.service_process import Running
from bench.simulation.demand import Demand, Load
from bench.workload import Job

WARM_UP = Mix(prompt=(64, 256), output=(8, 16))


class Answered(msgspec.Struct, frozen=True):
    """A run on the service. `drags` are those before and after it, `settings` the service's,
    and `plan_faults` are steps that another strategy than the one named planned."""

    label: str
    settings: tuple[str, ...]
    drags: tuple[float, float]
    plan_faults: float
    steps: float
    preemptions: float
    seen: list[Seen]


async def put(running: Running, load: Load, seed: int) -> tuple[list[Seen], Counted]:
    """Ask for everything when it is due, and wait for the last. Raises TimeoutError,
    ScrapeError, OSError and grpc.RpcError when the service is not there."""
    asks = [ask(demand, f"{seed} {number}") for number, demand in enumerate(load.demands)]
    before = await counters(running.metrics_url)
    replies = await when_due(running.target, asks)
    worked = await counters(running.metrics_url) - before
    return from_replies(load.demands, replies), worked


def ask(demand: Demand, seed: str) -> Ask:
    """A request of random token ids."""
    arrival = demand.arrival
    draw = random.Random(f"prompt {seed}")
    prompt = tuple(draw.randrange(BYTES) for _ in range(arrival.prompt_tokens))
    job = Job(prompt, arrival.output_tokens, arrival.at_s)
    return Ask(
        demand.tenant or "any",
        job,
        demand.priority,
        timeout_s=demand.deadline_s,
        leaves_s=demand.patience_s,
    )


def warm_up(running: Running, seed: int) -> None:
    """First steps cost more: threads start, kernels are chosen, step costs are unknown."""
    asks = [Ask("warm-up", job, salt="warm-up") for job in WARM_UP.jobs(8, seed)]
    asyncio.run(at_most(running.target, asks, 4))
