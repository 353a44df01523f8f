"""Holds a scheduler to its promises and says what became of each."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.extras import MissingExtra, conformance
from cli.options import read_options
from schedulers.interface import Promise, Scheduler
from schedulers.registry import UnknownScheduler, find
from service.strategy import BadOptions, make_scheduler

if TYPE_CHECKING:  # needs the extra, which `conformance` asks for
    from bench.conformance.verdict import PlanCost, Report, Verdict

HELD, BROKEN, MISTAKE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for; see `bench.conformance.kit.Effort`. `only`: promises
    by name, empty for all. `plans`: how many are timed in each situation, 0 for none."""

    examples: int
    seed: int
    horizon_s: float
    recomputes: int
    hours: float
    only: tuple[Promise, ...]
    plans: int
    as_json: bool


def check_scheduler(name: str, assignments: Sequence[str], wanted: Wanted) -> int:
    """Exit code: 0 every promise held, 1 one did not, 2 there is nothing to ask."""
    try:
        options = read_options(assignments)
        make_scheduler(name, options)
        kit = conformance()
    except (UnknownScheduler, BadOptions, MissingExtra) as error:
        print(f"walkway: {error}", file=sys.stderr)
        return MISTAKE
    report = _ask(kit, name, options, wanted)
    if wanted.as_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        _show(report)
    if report.broken or report.not_timed:
        return BROKEN
    return HELD if any(verdict.asked for verdict in report.verdicts) else MISTAKE


def _ask(kit: Any, name: str, options: dict[str, Any], wanted: Wanted) -> "Report":
    make = _maker(name, options)
    effort = kit.Effort(
        examples=wanted.examples,
        seed=wanted.seed,
        horizon_s=wanted.horizon_s,
        recomputes=wanted.recomputes,
        hours=wanted.hours,
        only=frozenset(wanted.only or Promise),
    )
    with Console(stderr=True).status(f"asking {name}"):
        report: Report = kit.check(name, options, make, effort)
        if wanted.plans and not report.broken:
            try:
                report.costs = kit.plan_costs(make, wanted.plans)
            except kit.NotTimed as error:
                report.not_timed = str(error)
    return report


def _maker(name: str, options: dict[str, Any]) -> Callable[[], Scheduler]:
    """Hundreds of instances are made: the name is looked up once."""
    found = find(name)
    chosen = TypeAdapter(found.Options).validate_python(options)
    return lambda: found(chosen)


def _show(report: "Report") -> None:
    console = Console(highlight=False)
    table = Table("promise", "asked", "held", "examples", "why", box=None)
    for verdict in report.verdicts:
        table.add_row(*_row(verdict))
    console.print(table)
    for verdict in report.broken:
        _show_case(console, verdict)
    if report.not_timed:
        console.print(f"planning before 10,000 who wait: {escape(report.not_timed)}")
    for cost in report.costs:
        console.print(escape(_cost(cost)))


def _row(verdict: "Verdict") -> tuple[str, ...]:
    held = {True: "yes", False: "[bold red]NO[/]", None: "-"}[verdict.held]
    asked = "yes" if verdict.asked else "no"
    why = "" if verdict.held is False else verdict.why
    return verdict.promise.value, asked, held, str(verdict.tried), escape(why)


def _show_case(console: Console, verdict: "Verdict") -> None:
    console.print(f"\n[bold]{verdict.promise.value}[/]: {escape(verdict.why)}")
    console.print("The smallest case found:")
    for line in verdict.script:
        console.print(f"  {line}", markup=False)
    console.print("What it came to:")
    for line in verdict.story:
        console.print(f"  {line}", markup=False)


def _cost(cost: "PlanCost") -> str:
    return (
        f"plan(), {cost.running:.0f} running, 10,000 waiting, {cost.situation}: "
        f"median {cost.median_s * 1000:.2f} ms, p99 {cost.p99_s * 1000:.2f} ms, "
        f"first after an exchange {cost.first_s * 1000:.1f} ms ({cost.plans} plans)"
    )
