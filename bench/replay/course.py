"""Carries a replay through: the machine is measured, then each strategy runs on the service,
then in the simulator, while no service is up."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import grpc

from bench.replay.asking import Answered, put, warm_up
from bench.replay.capacity import capacity_per_s, closed_loop
from bench.replay.keeping import Begun, Folder, Simulated
from bench.replay.machine import calibrated, drag, slowed
from bench.replay.seen import from_records
from bench.replay.traffic import Traffic, kept, load_of, recorded
from bench.scrape import ScrapeError
from bench.service_process import service
from bench.simulation.choice import Choice
from bench.simulation.demand import Load
from bench.simulation.engine import simulate
from bench.simulation.profile import Profile, read
from bench.trace import Arrival
from service.config import load_settings

BASE = (
    "log.level=warning",
    "model.dtype=fp32",  # bf16 without matrix units is slower, and its steps no line fits
    "server.max_waiting_requests=1000000",
    "server.max_waiting_tokens=1000000000",
    "server.max_concurrent_calls=1000000",
    "server.queue_timeout_s=inf",
    "server.request_timeout_s=inf",
)
PROBED = 96  # requests, by which the machine's speed is told
FAILURES = (RuntimeError, OSError, ScrapeError, ValueError, grpc.RpcError)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The command line. `profile` None: the steps are measured, each `repeats` times."""

    traffic: Traffic
    strategies: tuple[str, ...]
    settings: tuple[str, ...]
    folder: Folder
    profile: Path | None
    repeats: int


def begin(wanted: Wanted) -> Begun:
    """What the folder has, else the machine measured and the load sized by it. Raises
    ValueError when the folder has another load."""
    traffic = wanted.traffic
    settings = (*BASE, *wanted.settings)
    before = wanted.folder.begun()
    if before is None:
        begun = _measured(wanted, settings)
        wanted.folder.begin(begun)
        return begun
    if (before.traffic, before.settings) != (traffic, settings):
        raise ValueError(f"{wanted.folder.path} has runs of another load: give another --out")
    return before


def _measured(wanted: Wanted, settings: tuple[str, ...]) -> Begun:
    traffic, path = wanted.traffic, wanted.folder.path / "profile.json"
    profile = _profile(wanted, settings, path)
    arrivals = recorded(traffic, profile.context_tokens)
    with service((*settings, "scheduler.name=fcfs")) as running:
        warm_up(running, traffic.seed)
        slower = drag(running, profile, _probe(arrivals, profile), "begin")
    capacity = capacity_per_s(arrivals, slowed(profile, slower), traffic.seed)
    rate_per_s = traffic.times * capacity
    kept(arrivals, rate_per_s, traffic.seed)  # or the trace has too few of them
    say(f"{slower:.2f} times the simulated time; capacity {capacity:.2f} requests/s")
    return Begun(traffic, settings, profile, slower, capacity, rate_per_s)


def _profile(wanted: Wanted, settings: Sequence[str], path: Path) -> Profile:
    return (
        read(wanted.profile) if wanted.profile else calibrated(settings, path, wanted.repeats)
    )


def the_load(begun: Begun) -> Load:
    """What every strategy gets, real and simulated."""
    traffic, profile = begun.traffic, slowed(begun.profile, begun.drag)
    arrivals = recorded(traffic, profile.context_tokens)
    return load_of(traffic, kept(arrivals, begun.requests_per_s, traffic.seed), profile)


def really(wanted: Wanted, begun: Begun, load: Load) -> Iterator[Answered]:
    """The runs on the service, those that the folder has among them. One that fails is told
    and left out: the others go on."""
    for label in wanted.strategies:
        run = wanted.folder.real(label)
        if run is None:
            try:
                run = _really(label, begun, load)
            except FAILURES as error:
                say(f"{label} failed: {str(error) or type(error).__name__}")
                continue
            wanted.folder.keep_real(run)
        yield run


def _really(label: str, begun: Begun, load: Load) -> Answered:
    settings, seed = (*begun.settings, *strategy(label)), begun.traffic.seed
    profile = begun.profile
    probe = _probe([demand.arrival for demand in load.demands], profile)
    say(f"{label}: {len(load.demands)} requests in {begun.traffic.minutes:g} minutes")
    with service(settings) as running:
        warm_up(running, seed)
        before = drag(running, profile, probe, "before")
        seen, worked = asyncio.run(put(running, load, seed))
        try:
            after = drag(running, profile, probe, "after")
        except FAILURES as error:  # no reason to lose the run
            say(f"{label}: not measured again: {error}")
            after = before
    drags = before, after
    say(f"{label}: {drags[0]:.2f} times the simulated time before, {drags[1]:.2f} after")
    faults, steps, preemptions = worked.plan_faults, worked.steps, worked.preemptions
    return Answered(label, settings, drags, faults, steps, preemptions, seen)


def _probe(arrivals: Sequence[Arrival], profile: Profile) -> Load:
    return closed_loop(arrivals, PROBED, profile.max_rows)


def simulated(run: Answered, begun: Begun, load: Load) -> Simulated:
    """The same in the simulator, on a machine as fast as it was then."""
    profile = slowed(begun.profile, mean(run.drags))
    found = simulate(load, profile, choice(run.label))
    for fault in found.faults[:1]:
        say(f"{run.label}, simulated: {fault}")
    return Simulated(run.label, from_records(found.records))


def strategy(label: str) -> tuple[str, ...]:
    """Settings of `NAME option=value ...`."""
    name, *options = label.split()
    chosen = tuple(f"scheduler.options.{option}" for option in options)
    return (f"scheduler.name={name}", *chosen)


def choice(label: str) -> Choice:
    """For the simulator. Raises ConfigError."""
    scheduler = load_settings(None, strategy(label)).scheduler
    return Choice(label, scheduler.name, scheduler.options)


def say(line: str) -> None:
    print(f"bench.replay: {line}", file=sys.stderr, flush=True)
