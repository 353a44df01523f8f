"""Strategies on traces, machines and loads, simulated: figures, pictures, and what they are to
reach.

    python -m bench.study
    python -m bench.study --trace conv=AzureLLMInferenceTrace_conv.csv --scenario urgent
    python -m bench.study --profile cpu --rows 64 --load 0.5 --load 2 --requests 300

Loads are multiples of the capacity, which is found first, of each trace on each machine with
`fcfs`. Results are kept in study.jsonl in `--out`; only those are computed whose cell is not
there or whose code has changed since. Writes study.json and a picture of each figure.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.arguments import count, positive
from bench.extras import MissingExtra, study_plots
from bench.simulation.engine import Stalled
from bench.simulation.loads import BadLoad
from bench.simulation.parallel import Workers
from bench.simulation.profile import BadProfile
from bench.study.cells import Ground
from bench.study.matrix import Matrix, cells, run
from bench.study.output import save
from bench.study.scenarios import HEADLINES, SCENARIOS, Scenario
from bench.study.store import Store
from bench.study.table import capacities, tables, targets

NAMES = tuple(scenario.name for scenario in SCENARIOS)
LOADS = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
STRATEGIES = sorted({strategy for one in SCENARIOS for strategy in one.strategies})
FAILURES = (MissingExtra, BadLoad, BadProfile, Stalled, OSError, msgspec.DecodeError)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    chosen = [one for one in SCENARIOS if one.name in (options.scenario or NAMES)]
    loads = sorted(set(options.load or LOADS))
    try:
        plots = study_plots()
        for folder in filter(None, (options.out, options.pictures)):
            folder.mkdir(parents=True, exist_ok=True)
        grounds = _grounds(options)
        store = Store(options.out / "study.jsonl")
        wanted = list(cells(grounds, chosen, loads, options.scheduler))
        if not wanted:
            raise BadLoad("nothing to run: none of the scenarios has that scheduler")
        with _bar() as bar, Workers(options.jobs) as workers:
            task = bar.add_task("", total=None)
            matrix = run(
                wanted,
                store,
                workers,
                lambda what, done, of: bar.update(
                    task, description=what, completed=done, total=of
                ),
            )
        save(matrix, options.out / "study.json")
        for one in chosen:
            for figure in one.figures:
                name = f"{one.name}-{figure.name}.png"
                plots.plot(matrix, one, figure, loads, options.out / name)
                if options.pictures and (one.name, figure.name) in HEADLINES:
                    plots.plot(matrix, one, figure, loads, options.pictures / name)
    except FAILURES as error:
        print(f"bench.study: {error}", file=sys.stderr)
        return 2
    _show(matrix, chosen, loads)
    return 0


def _show(matrix: Matrix, chosen: Sequence[Scenario], loads: Sequence[float]) -> None:
    console = Console(highlight=False)
    console.print(capacities(matrix))
    for one in chosen:
        for title, table in tables(matrix, one, loads):
            console.print(f"\n[bold]{title}[/]")
            console.print(table)
    console.print()
    console.print(targets(matrix))


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))


def _grounds(options: argparse.Namespace) -> list[Ground]:
    traces = options.trace or ["sample"]
    labelled = [text.partition("=") if "=" in text else (text, "", text) for text in traces]
    labels = [label for label, _, _ in labelled]
    if len(set(labels)) < len(labels):
        raise BadLoad(f"two traces have the same label: {', '.join(labels)}")
    return [
        Ground(label, path, profile, rows, options.requests, options.seed)
        for profile in options.profile or ["h100-8b"]
        for rows in options.rows or [64]
        for label, _, path in labelled
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--scenario", action="append", choices=NAMES, help="default: all")
    add("--trace", action="append", metavar="LABEL=FILE", help="or `sample`, the default")
    add("--profile", action="append", help="default: h100-8b")
    add("--rows", action="append", type=count, help="the profile's max_rows; default: 64")
    add("--load", action="append", type=positive, help="default: 0.5 to 4 times the capacity")
    add(
        "--scheduler",
        action="append",
        default=[],
        choices=STRATEGIES,
        metavar="NAME",
        help="only these; default: all",
    )
    add("--requests", type=count, default=1000, help="the first of each trace")
    add("--seed", type=int, default=0, help="of classes, which are drawn at random")
    add("--jobs", type=count, default=os.cpu_count() or 1, help="processes; default: cores")
    add("--out", type=Path, default=Path("bench/out/study"))
    add("--pictures", type=Path, help="folder for those of docs/schedulers.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
