"""Reads from the command line what a simulated engine is asked for."""

from dataclasses import dataclass, replace
from typing import Literal

from bench.simulation.capacity import Capacity, hastened
from bench.simulation.demand import Load, Rules, parse_shares
from bench.simulation.loads import BadLoad, Cut, Repeat, trace_load, workload_load
from bench.simulation.profile import Profile

MOST_PRIORITY = 15
Lengths = Literal["told", "untold"]


@dataclass(frozen=True, slots=True)
class ClassesWanted:
    """The command line's part on classes of requests; see `cli.simulation`."""

    priorities: str | None
    tenants: str | None
    slack: float | None
    first_token_slack: float | None
    pace: float | None
    timed_share: float | None
    lengths: Lengths
    seed: int


@dataclass(frozen=True, slots=True)
class LoadWanted:
    """The command line's part on the load; see `cli.simulation` for what each field means."""

    trace: str | None
    start_s: float
    seconds: float | None
    speedup: float
    token_scale: float
    workload: str
    clients: int | None
    rate_per_s: float | None
    requests: int | None
    times_capacity: float | None
    capacity: bool
    classes: ClassesWanted

    @property
    def finds_capacity(self) -> bool:
        """Whether the capacity is wanted, or a multiple of it."""
        return self.capacity or self.times_capacity is not None


def read_load(wanted: LoadWanted, profile: Profile) -> Load:
    """The load, not yet brought to a multiple of the capacity. Raises BadLoad, OSError, or
    ValueError for a share or priority that is none."""
    _expect_no_idle_option(wanted)
    rules = read_rules(wanted.classes)
    if wanted.trace is None:
        repeat = Repeat(wanted.requests, _rate_per_s(wanted), wanted.clients)
        return workload_load(wanted.workload, repeat, rules, profile)
    cut = Cut(
        wanted.start_s, wanted.seconds, wanted.requests, wanted.speedup, wanted.token_scale
    )
    return trace_load(wanted.trace, cut, rules, profile)


def at_capacity(load: Load, times: float, capacity: Capacity) -> Load:
    """The load at `times` its capacity."""
    hasty = hastened(load, times * capacity.times)
    return replace(hasty, name=f"{load.name}, {times:g} times the capacity")


def read_rules(wanted: ClassesWanted) -> Rules:
    """Classes of requests as they are typed. Raises BadLoad or ValueError."""
    wishes = (wanted.slack, wanted.first_token_slack, wanted.pace)
    if wanted.timed_share is not None and all(wish is None for wish in wishes):
        raise BadLoad("--deadline-share needs a deadline or a pace to give to that share")
    standard, levels = Rules(), parse_shares(wanted.priorities) if wanted.priorities else []
    return Rules(
        priorities=[(_priority(value), share) for value, share in levels]
        or standard.priorities,
        tenants=parse_shares(wanted.tenants) if wanted.tenants else standard.tenants,
        slack=wanted.slack,
        seed=wanted.seed,
        first_token_slack=wanted.first_token_slack,
        pace=wanted.pace,
        timed_share=1.0 if wanted.timed_share is None else wanted.timed_share,
        told=wanted.lengths == "told",
    )


def _rate_per_s(wanted: LoadWanted) -> float | None:
    """A capacity is found of an open loop, of any rate."""
    given = wanted.rate_per_s is not None or wanted.clients is not None
    return 1.0 if wanted.finds_capacity and not given else wanted.rate_per_s


def _priority(text: str) -> int:
    if not text.isdecimal() or int(text) > MOST_PRIORITY:
        raise ValueError(f"--priorities: {text!r} is not 0 to {MOST_PRIORITY}")
    return int(text)


def _expect_no_idle_option(wanted: LoadWanted) -> None:
    loop = {"--rate": wanted.rate_per_s is not None, "--clients": wanted.clients is not None}
    cut = {
        "--start": wanted.start_s != 0,
        "--seconds": wanted.seconds is not None,
        "--speedup": wanted.speedup != 1,
        "--token-scale": wanted.token_scale != 1,
    }
    for name, given in (cut if wanted.trace is None else loop).items():
        if given:
            raise BadLoad(f"{name} says nothing of a {'workload' if name in cut else 'trace'}")
    if all(loop.values()):
        raise BadLoad("--rate is an open loop, --clients a closed one: choose")
    if wanted.capacity and wanted.times_capacity is not None:
        raise BadLoad("--capacity prints the capacity, --load runs a multiple of it: choose")
    if wanted.finds_capacity and wanted.speedup != 1:
        raise BadLoad("--load and --capacity find the rate; --speedup sets it: choose")
