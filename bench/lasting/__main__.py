"""Whether strategies hold for as long as a trace lasts.

    python -m bench.lasting
    python -m bench.lasting --trace AzureLLMInferenceTrace_conv.csv --requests 20000

Simulates twice the load that can be served, in the trace's own pattern of arrivals, with
lengths untold and costs told wrong. On the slow `cpu` profile that makes hours of an hour.
The load comes in four equal turns, the first of which fills the queue; thirds are the others.
A class may not be answered less in the last third of the time than half of what it was in the
first, plans may not become dearer, and a strategy may keep nothing of requests that have ended.
Prints a line for each strategy, with the percentages answered in the first and in the
last third of the time; the status is 1 when one does not hold.
"""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.arguments import count, error_share, positive
from bench.lasting.load import lasting_load
from bench.lasting.thirds import CLASSES
from bench.lasting.verdict import Verdict, judge
from bench.simulation.catalogue import find_profile
from bench.simulation.demand import Load
from bench.simulation.loads import BadLoad
from bench.simulation.profile import BadProfile
from schedulers.registry import BUILT_IN, UnknownScheduler

COST_ERRORS = (-0.3, 0.3)
WIDTH = 80


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    console = Console(width=WIDTH, highlight=False)
    verdicts = []
    try:
        profile = find_profile(options.profile)
        load = lasting_load(
            options.trace, options.requests, options.times, profile, options.seed
        )
        for strategy in options.scheduler or BUILT_IN:
            for cost_error in options.cost_error or COST_ERRORS:
                print(f"{strategy}, costs {cost_error:+.0%}", file=sys.stderr, flush=True)
                verdicts.append(judge(load, profile, strategy, cost_error))
    except (BadLoad, BadProfile, UnknownScheduler, OSError) as error:
        print(f"bench.lasting: {error}", file=sys.stderr)
        return 2
    console.print(_heading(load), _table(verdicts), *_faults(verdicts), sep="\n")
    return int(any(verdict.faults for verdict in verdicts))


def _heading(load: Load) -> str:
    hours = load.demands[-1].arrival.at_s / 3600
    return f"{load.name}, arriving for {hours:.1f} h"


def _table(verdicts: Sequence[Verdict]) -> Table:
    """Percentages answered and calls of a plan, each in the first third and in the last."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("%, costs told")
    for name in (*CLASSES, "calls", "held", ""):
        table.add_column(name, justify="right")
    for one in verdicts:
        parts = [_change(one, name) for name in CLASSES]
        calls = " ".join(f"{one.calls[at]:.0f}" for at in (0, -1)) if one.calls else "-"
        holds = "NO" if one.faults else "ok"
        name = f"{one.strategy} {one.cost_error:+.0%}"
        table.add_row(name, *parts, calls, str(one.held), holds)
    return table


def _change(verdict: Verdict, name: str) -> str:
    if not verdict.thirds:
        return "-"
    first, last = (verdict.thirds[at].parts[name].answered for at in (0, -1))
    return f"{100 * first:.0f} {100 * last:.0f}"


def _faults(verdicts: Sequence[Verdict]) -> list[str]:
    return [
        f"{one.strategy} {one.cost_error:+.0%}: {fault}"
        for one in verdicts
        for fault in one.faults
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--trace", default="sample", help="a file; default: the sample, over and over")
    add("--requests", type=count, default=1000)
    add("--profile", default="cpu")
    add("--times", type=positive, default=2.0, help="multiple of the load that can be served")
    add("--scheduler", action="append", help="only these; default: all built-in ones")
    add("--cost-error", action="append", type=error_share, help="default: -0.3 and 0.3")
    add("--seed", type=int, default=0, help="of classes, which are drawn at random")
    return parser


if __name__ == "__main__":
    sys.exit(main())
