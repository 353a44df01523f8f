"""Makes a load: a trace or a workload, cut, scaled and dressed by rules."""

import random
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bench.simulation.demand import Demand, Load, Rules, demands
from bench.simulation.mooncake import BLOCK_TOKENS, read_mooncake
from bench.simulation.profile import Profile
from bench.trace import SAMPLE, Arrival, Scale, read_trace, scaled
from bench.workload import load_workload


class BadLoad(ValueError):
    """The load cannot be made; one line for people."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Which part of a trace, and how fast: from `start_s` on, for `seconds`, at most
    `requests` of it; times are divided by `speedup`, token counts multiplied by `tokens`."""

    start_s: float = 0.0
    seconds: float | None = None
    requests: int | None = None
    speedup: float = 1.0
    tokens: float = 1.0


@dataclass(frozen=True, slots=True)
class Repeat:
    """How a workload is asked for: `requests` drawn from it, all of them in turn when None.
    Open loop with `rate_per_s` (Poisson), else closed loop with so many clients."""

    requests: int | None = None
    rate_per_s: float | None = None
    clients: int | None = None


def trace_load(source: str, cut: Cut, rules: Rules, profile: Profile) -> Load:
    """A load from a trace file (`.jsonl`: Mooncake; else Azure's CSV), or the `sample` that
    comes with the project. Raises BadLoad, or OSError for a file that cannot be read."""
    path = SAMPLE if source == "sample" else Path(source)
    try:
        trace = read_mooncake(path) if path.suffix == ".jsonl" else read_trace(path)
    except ValueError as error:
        raise BadLoad(str(error)) from error
    if any(arrival.blocks for arrival in trace):
        _expect_whole_blocks(cut, profile)
    scale = Scale(1 / cut.speedup, cut.tokens, profile.context_tokens, cut.seconds)
    arrivals = list(islice(scaled(_from(trace, cut.start_s), scale), cut.requests))
    return _load(f"trace {path.stem}, {len(arrivals)} requests", arrivals, rules, profile)


def workload_load(name: str, repeat: Repeat, rules: Rules, profile: Profile) -> Load:
    """A load with the lengths of a workload that comes with the project."""
    jobs = load_workload(name)
    draw = random.Random(f"workload {rules.seed}")
    if repeat.requests is not None:
        jobs = draw.choices(jobs, k=repeat.requests)
    at_s = 0.0
    arrivals = []
    for job in jobs:
        if repeat.rate_per_s is not None:
            at_s += draw.expovariate(repeat.rate_per_s)
        arrivals.append(Arrival(at_s, len(job.prompt), job.max_tokens))
    if repeat.rate_per_s is not None:
        how, clients = f"{repeat.rate_per_s:g} requests/s", None
    else:
        clients = repeat.clients or profile.max_rows
        how = f"{clients} clients"
    name = f"{name}, {len(arrivals)} requests, {how}"
    return _load(name, arrivals, rules, profile, clients)


def _load(
    name: str,
    arrivals: list[Arrival],
    rules: Rules,
    profile: Profile,
    clients: int | None = None,
) -> Load:
    if not arrivals:
        raise BadLoad("no requests to simulate")
    if not rules.told:
        name += ", lengths untold"
    found: list[Demand] = demands(arrivals, rules, profile.costs.alone_s)
    return Load(name, found, clients)


def _from(trace: list[Arrival], start_s: float) -> list[Arrival]:
    return [
        Arrival(a.at_s - start_s, a.prompt_tokens, a.output_tokens, a.blocks)
        for a in trace
        if a.at_s >= start_s
    ]


def _expect_whole_blocks(cut: Cut, profile: Profile) -> None:
    if cut.tokens != 1.0:
        raise BadLoad("a trace that names its blocks cannot have its token counts scaled")
    if BLOCK_TOKENS % profile.page_size:
        raise BadLoad(f"pages of {profile.page_size} tokens do not divide {BLOCK_TOKENS}")
