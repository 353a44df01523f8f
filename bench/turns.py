"""How an engine under measurement is driven: it says `{"ready": NAME}` once it is warm; then
a workload's name on a line of standard input brings one JSON object on a line of standard
output, until the input ends.

So an engine starts once, and several take turns, round by round. Standard library only:
an engine may run in an interpreter of its own.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict

from bench.samples import Answer, summarise
from bench.workload import Job, load_workload, running_at_most

Run = Callable[[Sequence[Job], int], list[Answer]]
"""Answers jobs, so many at once at most."""


def own_stdout() -> Callable[[str], None]:
    """A writer to standard output that nobody else has: what libraries print goes to
    standard error from here on."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return lambda line: print(line, file=lines)


def leave_on_sigterm() -> None:
    """SIGTERM unwinds like an exit, so that what was started is stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def named(given: Sequence[str]) -> Iterable[str]:
    """The workloads given, or those that come in on standard input."""
    return given or (line.strip() for line in sys.stdin if line.strip())


def take_turns(
    engine: str,
    run: Run,
    names: Iterable[str],
    say: Callable[[str], None],
    notes: Callable[[], dict[str, float]] = dict,
) -> None:
    """Run one workload after the other and say what came of it. `load_1m` is the machine's
    load before the run: how far to trust the figures. `notes` adds what the engine itself
    counted."""
    say(json.dumps({"ready": engine}))
    for name in names:
        load = os.getloadavg()[0]
        found = summarise(run(load_workload(name), running_at_most(name)))
        if found.failed:
            raise RuntimeError(f"{engine} failed requests of {name}: {found.statuses}")
        turn = {"engine": engine, "workload": name, "load_1m": load, **asdict(found)}
        say(json.dumps(turn | notes()))
