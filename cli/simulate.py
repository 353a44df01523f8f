"""Simulates what the command line asks for, and shows and writes what came of it."""

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from bench.extras import MissingExtra, simulation_pictures
from bench.simulation.bound import bound, expect_arrivals
from bench.simulation.capacity import find_capacity
from bench.simulation.catalogue import find_profile
from bench.simulation.choice import Choice
from bench.simulation.demand import Load
from bench.simulation.engine import Stalled, simulate
from bench.simulation.figures import SLO, figures, usual_slo
from bench.simulation.loads import BadLoad
from bench.simulation.output import Simulated, file_name, save, save_requests
from bench.simulation.profile import BadProfile, Profile
from bench.simulation.run import Run
from bench.simulation.tables import tables
from cli.as_json import print_json
from cli.options import read_options
from cli.simulated_load import LoadWanted, at_capacity, read_load
from schedulers.registry import UnknownScheduler
from service.planner import BrokenScheduler
from service.strategy import BadOptions

FAULTS_SHOWN = 3
LIMITS = {
    "max_rows",
    "max_step_tokens",
    "device_pages",
    "host_pages",
    "watermark_pages",
    "context_tokens",
    "target_gap_s",
}
MISTAKES = (
    BadLoad,
    BadOptions,
    BadProfile,
    MissingExtra,
    UnknownScheduler,
    OSError,
    ValueError,  # a share, priority or window that is none
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The command line; see `cli.simulation` for what each field means.
    `pictures` None: where matplotlib is installed."""

    schedulers: Sequence[str]
    profile: str
    limits: Sequence[str]
    load: LoadWanted
    cost_error: float
    bound: bool
    ttft_s: float | None
    tpot_s: float | None
    gantt: str | None
    pictures: bool | None
    check: bool
    out: Path
    as_json: bool


def run_simulation(wanted: Wanted) -> int:
    """Exit code: 0 done, 1 a scheduler stands still, 2 a mistake in the call."""
    console = Console(stderr=True)
    try:
        pictures = _pictures(wanted.pictures)
        choices = [read_choice(text) for text in wanted.schedulers]
        profile = limited(find_profile(wanted.profile), wanted.limits)
        window = None if wanted.gantt is None else read_window(wanted.gantt)
        _expect_one_task(wanted, choices)
        load = _load(wanted, profile, console)
        if load is None:
            return 0
        if wanted.bound:
            expect_arrivals(load)
        wanted.out.mkdir(parents=True, exist_ok=True)
    except MISTAKES as error:
        print(f"walkway: {line_of(error)}", file=sys.stderr)
        return 2
    try:
        runs = [_run(load, profile, choice, wanted, console) for choice in choices]
    except (Stalled, BrokenScheduler) as error:
        print(f"walkway: {error}", file=sys.stderr)
        return 1
    slo = read_slo(profile, wanted.ttft_s, wanted.tpot_s)
    name = load.name
    if wanted.cost_error:
        name += f", costs told {wanted.cost_error:+.0%}"
    found = [figures(run, profile, slo) for run in runs]
    limit = bound(load, profile, slo) if wanted.bound else None
    simulated = Simulated(name, profile, slo, found, limit)
    try:
        _write(simulated, runs, wanted.out)
        if pictures is not None:
            pictures.draw(runs, profile, slo, limit, window, wanted.out)
    except OSError as error:
        print(f"walkway: {line_of(error)}", file=sys.stderr)
        return 2
    if wanted.as_json:
        print((wanted.out / "simulation.json").read_text(), end="")
    else:
        _show(simulated, wanted.out)
    for run in runs:
        for fault in run.faults[:FAULTS_SHOWN]:
            print(f"walkway: {run.label}: {fault}", file=sys.stderr)
    return 0


def _expect_one_task(wanted: Wanted, choices: Sequence[Choice]) -> None:
    if wanted.load.capacity and (choices or wanted.bound):
        raise BadLoad("--capacity runs fcfs alone: leave out --scheduler and --bound")
    if not (choices or wanted.load.capacity):
        raise BadLoad("nothing to simulate: name a --scheduler")
    files = [file_name(choice.label) for choice in choices]
    for choice, name in zip(choices, files, strict=True):
        if files.count(name) > 1:
            raise BadLoad(f"--scheduler {choice.label!r}: two would write {name}.csv")


def _pictures(wanted: bool | None) -> ModuleType | None:
    """What draws them. Without a wish they are left out where matplotlib is missing, which is
    said; MissingExtra where they were asked for."""
    if wanted is False:
        return None
    try:
        return simulation_pictures()
    except MissingExtra as error:
        if wanted:
            raise
        print(f"walkway: no pictures: {error}", file=sys.stderr)
        return None


def _write(simulated: Simulated, runs: Sequence[Run], out: Path) -> None:
    save(simulated, out / "simulation.json")
    for run in runs:
        save_requests(run, out / f"{file_name(run.label)}.csv")


def read_choice(text: str) -> Choice:
    """`NAME option=value ...`; raises BadOptions or UnknownScheduler."""
    name, *assignments = text.split() or [""]
    choice = Choice(" ".join((name, *assignments)), name, read_options(assignments))
    choice.make()  # a mistake is to be found before anything runs
    return choice


def limited(profile: Profile, assignments: Sequence[str]) -> Profile:
    """The profile with other limits. Raises BadProfile or BadOptions."""
    given = read_options(assignments)
    for name in sorted(given.keys() - LIMITS):
        raise BadProfile(f"no limit {name!r}; there are {', '.join(sorted(LIMITS))}")
    try:
        found = msgspec.convert(msgspec.to_builtins(profile) | given, Profile)
    except msgspec.ValidationError as error:
        raise BadProfile(f"limits: {error}") from error
    if found.max_step_tokens <= found.max_rows:
        raise BadProfile(
            f"limits: max_step_tokens ({found.max_step_tokens}) must be above max_rows "
            f"({found.max_rows}), as in the service"
        )
    return found


def read_slo(profile: Profile, ttft_s: float | None, tpot_s: float | None) -> SLO:
    """The usual one of the profile where none is given."""
    usual = usual_slo(profile)
    return SLO(
        usual.ttft_s if ttft_s is None else ttft_s, usual.tpot_s if tpot_s is None else tpot_s
    )


def read_window(text: str) -> tuple[float, float]:
    """`START:SECONDS` as begin and end. Raises ValueError."""
    try:
        start_s, seconds = map(float, text.split(":"))
    except ValueError:
        raise ValueError(f"--gantt {text!r} is not START:SECONDS") from None
    if not (0 <= start_s < math.inf and 0 < seconds < math.inf):
        raise ValueError(f"--gantt {text!r} is not a stretch of time")
    return start_s, start_s + seconds


def line_of(error: Exception) -> str:
    """What is wrong, with the file first where it is one."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _load(wanted: Wanted, profile: Profile, console: Console) -> Load | None:
    """What to simulate; None where only its capacity was asked for, which is printed."""
    load, times = read_load(wanted.load, profile), wanted.load.times_capacity
    if not wanted.load.finds_capacity:
        return load
    with console.status("capacity") as status:
        found = find_capacity(
            load, profile, lambda tried: status.update(f"capacity: {tried:.3g} times")
        )
    if times is None and wanted.as_json:
        print_json({"load": load.name, **asdict(found)})
    else:
        print(
            f"capacity: {found.requests_per_s:.3g} requests/s, {found.times:.3g} times the "
            f"rate of {load.name}; saturated {found.saturated:.3g} times",
            file=sys.stdout if times is None else sys.stderr,
        )
    return None if times is None else at_capacity(load, times, found)


def _run(load: Load, profile: Profile, choice: Choice, wanted: Wanted, console: Console) -> Run:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task(choice.label, total=len(load.demands))
        shown_s = 0.0

        def progress(ended: int) -> None:
            nonlocal shown_s
            if time.monotonic() - shown_s > 0.2:
                shown_s = time.monotonic()
                bar.update(task, completed=ended)

        run = simulate(load, profile, choice, progress, wanted.check, wanted.cost_error)
        bar.update(task, completed=len(load.demands))
    return run


def _show(simulated: Simulated, out: Path) -> None:
    profile = simulated.profile
    console = Console(highlight=False)
    console.print(f"{simulated.load}; {profile.name}: {profile.source}, {profile.note}")
    for table in tables(simulated.runs, simulated.slo, simulated.bound):
        console.print()
        console.print(table)
    console.print(f"\nwritten to {out}")
