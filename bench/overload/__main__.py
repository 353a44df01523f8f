"""What strategies do when more is asked for than the service can do.

    python -m bench.overload
    python -m bench.overload priority deadlines --rounds 3
    python -m bench.overload memory --model toy --seconds 2

Each variant is a service of its own on this machine, with a pool for a quarter of what 64
requests come to; all variants of a scenario get the same requests at the same times, in
multiples of a capacity that is measured first. They arrive in the bursts of a recorded trace,
with a rise and a fall, for three times as long as the strategies' options reach: some minutes
a variant. Prints a table for each scenario; writes
overload-SCENARIO.json and .png to `--out`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
import msgspec
from rich.console import Console

from bench.extras import MissingExtra, plots
from bench.overload.capacity import Capacity
from bench.overload.deadlines import Deadlines
from bench.overload.memory import Memory
from bench.overload.priority import Priority
from bench.overload.rounds import Course, Effort, run
from bench.overload.scenario import Scenario
from bench.overload.table import heading, table
from bench.overload.tenants import Tenants
from bench.scrape import ScrapeError
from bench.turns import leave_on_sigterm
from service.config import ConfigError

SCENARIOS: tuple[Scenario, ...] = (Priority(), Memory(), Tenants(), Deadlines())
NAMES = tuple(scenario.name for scenario in SCENARIOS)
FAILURES = (MissingExtra, ScrapeError, ConfigError)
WIDTH = 160


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    chosen = [one for one in SCENARIOS if one.name in (options.scenario or NAMES)]
    if unknown := set(options.scenario) - set(NAMES):
        parser.error(f"no scenario {sorted(unknown)[0]}; there are {', '.join(NAMES)}")
    leave_on_sigterm()
    try:
        plots()  # before an hour of measuring, not after
        for scenario in chosen:
            _measure(scenario, _effort(options), options.out)
    except (*FAILURES, RuntimeError, OSError, ValueError, grpc.RpcError) as error:
        print(f"bench.overload: {error}", file=sys.stderr)
        return 2
    return 0


def _measure(scenario: Scenario, effort: Effort, out: Path) -> None:
    from bench.overload.plots import plot_course  # needs the extra that was asked for above

    path = out / f"overload-{scenario.name}.json"
    course: Course | None = None
    for course in run(scenario, effort):
        _save(course, path)
    assert course
    plot_course(course, scenario.headlines, path.with_suffix(".png"))
    console = Console(width=WIDTH, highlight=False)
    console.print(heading(course), table(course))


def _save(course: Course, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(course), indent=1))


def _effort(options: argparse.Namespace) -> Effort:
    model = (f"model.source={options.model}",) if options.model else ()
    return Effort(
        settings=(*model, *options.set),
        rounds=options.rounds,
        seconds=options.seconds,
        seed=options.seed,
        capacity=Capacity(*options.capacity) if options.capacity else None,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", nargs="*", help=f"of {', '.join(NAMES)}; default: all")
    parser.add_argument("--set", action="append", default=[], metavar="GROUP.FIELD=VALUE")
    parser.add_argument("--model", help="as `--set model.source=...`")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--seconds",
        type=float,
        help="length of the load; default: three times the longest time in a strategy's "
        "options",
    )
    parser.add_argument("--seed", type=int, default=0, help="of lengths and arrivals")
    parser.add_argument(
        "--capacity",
        type=float,
        nargs=2,
        metavar=("REQUESTS_PER_S", "SERVED_S"),
        help="repeat an earlier load; default: measure the capacity",
    )
    parser.add_argument("--out", type=Path, default=Path("bench/out"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
