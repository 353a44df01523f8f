"""An hour of recorded traffic on the real engine under each strategy, and the same in the
simulator, side by side.

    python -m bench.replay --trace FILE --minutes 10
    python -m bench.replay --trace FILE --minutes 1 fcfs 'priority aged_share=0.2'

Each strategy has a service of its own on this machine. The arrivals keep the trace's rise and
fall, in `--minutes`; as many of them are kept, drawn at random, as come to `--times` what the
machine can do: its steps are measured first, and a closed loop on the service for what the
front end and the clients take of the same cores. That loop is run again before and after each
strategy, whose simulation is of a machine as fast as it was then. The service's own limits on
its queue and on a call's time are off, so that what a caller meets is the strategy.

Every run is written to `--out` when it ends. The same command again goes on with what is
missing there, and so does one with more strategies. Prints a table, and writes it to
`replay.txt`. A strategy takes the minutes, a quarter for the last callers' patience, and half
a minute for the service and the closed loops.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
import msgspec
from rich.console import Console
from rich.table import Table

from bench.arguments import count, positive
from bench.replay import course
from bench.replay.course import Wanted
from bench.replay.figures import figures
from bench.replay.keeping import Begun, Folder
from bench.replay.machine import slowed
from bench.replay.table import heading, table
from bench.replay.traffic import Traffic
from bench.scrape import ScrapeError
from bench.simulation.figures import usual_slo
from bench.turns import leave_on_sigterm
from schedulers.registry import BUILT_IN, UnknownScheduler
from service.config import ConfigError
from service.strategy import BadOptions

STRATEGIES = tuple(name for name in BUILT_IN if name not in ("static", "swap"))
MISTAKES = (
    BadOptions,
    ConfigError,
    RuntimeError,
    OSError,
    ScrapeError,
    UnknownScheduler,
    ValueError,
    grpc.RpcError,
    msgspec.DecodeError,
)
WIDTH = 180
PATIENCE = 0.25  # of the time in which requests arrive


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 a strategy failed, 2 there was nothing to compare."""
    options = _parser().parse_args(arguments)
    leave_on_sigterm()
    try:
        wanted = _wanted(options)
        for label in wanted.strategies:
            course.choice(label).make()  # a mistake is to be found before anything runs
        begun = course.begin(wanted)
        return _compare(wanted, begun)
    except MISTAKES as error:
        course.say(str(error) or type(error).__name__)
        return 2


def _compare(wanted: Wanted, begun: Begun) -> int:
    load = course.the_load(begun)
    runs = list(course.really(wanted, begun, load))
    real, expected = {}, {}
    slo = usual_slo(slowed(begun.profile, begun.drag))
    for run in runs:
        simulated = course.simulated(run, begun, load)
        wanted.folder.keep_simulated(simulated)
        real[run.label] = figures(begun.traffic, slo, run.seen)
        expected[run.label] = figures(begun.traffic, slo, simulated.seen)
    if not runs:
        return 2
    _show(wanted, heading(begun, slo, runs), table(real, expected))
    return 0 if len(runs) == len(wanted.strategies) else 1


def _show(wanted: Wanted, about: str, found: Table) -> None:
    with (wanted.folder.path / "replay.txt").open("w") as file:
        for console in (Console(width=WIDTH), Console(width=WIDTH, file=file)):
            console.print(about, found, highlight=False, markup=False)


def _wanted(options: argparse.Namespace) -> Wanted:
    standard = Traffic(trace=options.trace)
    patience_s = options.patience
    traffic = msgspec.structs.replace(
        standard,
        minutes=options.minutes,
        tokens=options.token_scale,
        times=options.times,
        hurried=options.hurried,
        slack=options.deadline_slack,
        patience_s=PATIENCE * 60 * options.minutes if patience_s is None else patience_s,
        seed=options.seed,
    )
    model = (f"model.source={options.model}",) if options.model else ()
    return Wanted(
        traffic=traffic,
        strategies=tuple(options.strategy or STRATEGIES),
        settings=(*model, *options.set),
        folder=Folder(options.out),
        profile=options.profile,
        repeats=options.repeats,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("strategy", nargs="*", help=f"default: {', '.join(STRATEGIES)}")
    add("--trace", default="sample", help="Azure CSV; default: the sample")
    add("--minutes", type=positive, default=10.0, help="length of a run")
    add("--times", type=positive, default=2.0, help="load: multiple of the capacity")
    add("--token-scale", type=positive, default=0.2, help="0.1: a tenth as long")
    add("--hurried", type=float, default=0.3, help="share with a deadline")
    add("--deadline-slack", type=positive, default=8.0, help="times what a request takes alone")
    add(
        "--patience",
        type=positive,
        help="of callers without a deadline, seconds; default: a quarter of a run",
    )
    add("--set", action="append", default=[], metavar="GROUP.FIELD=VALUE")
    add("--model", help="as `--set model.source=...`")
    add("--profile", type=Path, help="of an earlier run; default: calibrate")
    add("--repeats", type=count, default=5, help="of each calibrated step")
    add("--seed", type=int, default=0, help="of all that is drawn at random")
    add("--out", type=Path, default=Path("bench/out/replay"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
