"""Runs a scenario: the capacity once, then every variant in every round, each on a service
started for it, so that no variant inherits what another left."""

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.load import model_info
from bench.overload.asks import Ask, Mix, pages_of
from bench.overload.capacity import Capacity, measured
from bench.overload.client import Reply, at_most
from bench.overload.lasting import Length, length_of
from bench.overload.scenario import AT_ONCE, POOL_SHARE, Scenario, Stand, Variant
from bench.service_process import Running, service
from service.config import load_settings

WARM_UP = Mix(prompt=(32, 64), output=(4, 8))
BASE = (
    "log.level=warning",
    "server.max_waiting_requests=1000000",
    "server.max_waiting_tokens=1000000000",
    "server.queue_timeout_s=inf",
    "server.request_timeout_s=inf",
    "memory.host_bytes=1073741824",
)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure, and on what. Without a `capacity` it is measured; without `seconds`
    load comes for as long as the strategies that are measured ask for."""

    settings: tuple[str, ...] = ()
    rounds: int = 1
    seconds: float | None = None
    seed: int = 0
    capacity: Capacity | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One load on one variant. `load_1m` is the machine's before: how far to trust it."""

    variant: str
    part: str
    round: int
    load_1m: float
    figures: dict[str, float]
    replies: list[Reply]


@dataclass(slots=True)
class Course:
    """A scenario as it was run."""

    scenario: str
    title: str
    service: str
    settings: tuple[str, ...]
    capacity: Capacity
    length: Length
    effort: Effort
    turns: list[Turn] = field(default_factory=list)


def run(scenario: Scenario, effort: Effort) -> Iterator[Course]:
    """The course so far, after each variant. Raises RuntimeError when a service does not
    come up, ScrapeError, OSError, grpc.RpcError and ValueError when it does not do as it
    should."""
    settings = sized(scenario.mix, effort)
    course = _begin(scenario, settings, effort)
    _say(f"{scenario.name}: {course.capacity}, {course.length}")
    for number in range(effort.rounds):
        for variant in scenario.variants:
            course.turns += _turns(scenario, variant, course, number)
            yield course


def sized(mix: Mix, effort: Effort) -> tuple[str, ...]:
    """Settings with a pool of POOL_SHARE of what AT_ONCE requests of the mix come to, unless
    `effort` says otherwise."""
    given = load_settings(None, (*BASE, *effort.settings)).memory
    pages = [pages_of(job, given.page_size) for job in mix.jobs(AT_ONCE, effort.seed)]
    scratch = 1
    pool = round(sum(pages) * POOL_SHARE) + scratch
    return (*BASE, f"memory.num_pages={pool}", *effort.settings)


def _begin(scenario: Scenario, settings: tuple[str, ...], effort: Effort) -> Course:
    with service((*settings, "scheduler.name=fcfs")) as running:
        info = model_info(running.target)
        found = effort.capacity
        if found is None:
            _warm_up(running, effort.seed)
            found = asyncio.run(measured(running, scenario.mix, effort.seed))
    name = f"{info.model} {info.dtype}, {info.kv_pages} pages of {info.page_size}"
    if effort.seconds is None:
        length = length_of(scenario.variants, settings, found)
    else:
        length = Length(effort.seconds, "as asked for")
    return Course(scenario.name, scenario.title, name, settings, found, length, effort)


def _turns(scenario: Scenario, variant: Variant, course: Course, number: int) -> list[Turn]:
    effort = course.effort
    with service((*course.settings, *variant.settings)) as running:
        _warm_up(running, effort.seed)
        load_1m = os.getloadavg()[0]
        _say(f"{scenario.name}, round {number}: {variant.title} (load {load_1m:.1f})")
        stand = Stand(
            running,
            course.capacity,
            course.length.seconds,
            effort.seed,
            variant.tells_lengths,
        )
        outcomes = asyncio.run(scenario.run(stand))
    return [
        Turn(variant.title, one.part, number, load_1m, one.figures, one.replies)
        for one in outcomes
    ]


def _warm_up(running: Running, seed: int) -> None:
    """First steps cost more: threads start, kernels are chosen, step costs are unknown."""
    asks = [Ask("warm-up", job, salt="warm-up") for job in WARM_UP.jobs(8, seed)]
    asyncio.run(at_most(running.target, asks, 4))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
