"""Shows which strategy and limits serve a trace best."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from bench.advice.advice import Advice, Advisor, Question
from bench.advice.objective import OBJECTIVES, Objective, usual_objective
from bench.advice.report import Report
from bench.advice.trial import BadPlans, Traffic
from bench.simulation.capacity import Capacity, find_capacity
from bench.simulation.catalogue import find_profile
from bench.simulation.choice import Choice
from bench.simulation.demand import Load
from bench.simulation.engine import Stalled
from bench.simulation.loads import BadLoad, Cut
from bench.simulation.parallel import Workers
from bench.simulation.profile import Profile
from cli.as_json import print_json
from cli.simulate import MISTAKES, limited, line_of, read_choice, read_slo
from cli.simulated_load import ClassesWanted, read_rules
from schedulers.registry import UnknownScheduler


@dataclass(frozen=True, slots=True)
class Wanted:
    """The command line; see `cli.advising` for what each field means."""

    trace: str
    cut: Cut
    profile: str
    limits: Sequence[str]
    classes: ClassesWanted
    objective: str | None
    schedulers: Sequence[str]
    what_if: float
    ttft_s: float | None
    tpot_s: float | None
    jobs: int
    as_json: bool


def run_advice(wanted: Wanted) -> int:
    """Exit code: 0 done, 1 a scheduler stands still or plans badly, 2 a mistake in the call."""
    try:
        question = _question(wanted)
        load = question.traffic.load(1.0, question.profile)
        with Workers(wanted.jobs) as workers:
            capacity = workers.start(_capacity, (load, question.profile))
            report = Report(question, load, _advise(question, workers), capacity())
    except MISTAKES as error:
        print(f"walkway: {line_of(error)}", file=sys.stderr)
        return 2
    except (Stalled, BadPlans) as error:
        print(f"walkway: {error}", file=sys.stderr)
        return 1
    if wanted.as_json:
        print_json(report.plain())
    else:
        _show(report)
    return 0


def _capacity(task: tuple[Load, Profile]) -> Capacity | str:
    """Why there is none where the traffic is too little for one."""
    try:
        return find_capacity(*task)
    except BadLoad as error:
        return str(error)


def _question(wanted: Wanted) -> Question:
    """Raises one of MISTAKES."""
    profile = limited(find_profile(wanted.profile), wanted.limits)
    traffic = Traffic(wanted.trace, wanted.cut, read_rules(wanted.classes))
    return Question(
        traffic,
        profile,
        _objective(wanted.objective, traffic.load(1.0, profile)),
        read_slo(profile, wanted.ttft_s, wanted.tpot_s),
        wanted.what_if,
        [_offered(text) for text in wanted.schedulers],
    )


def _offered(text: str) -> Choice:
    """A strategy that the service has. Raises BadOptions or UnknownScheduler."""
    choice = read_choice(text)
    if choice.is_peer:
        raise UnknownScheduler(
            f"scheduler {choice.name!r} is another engine's: `walkway simulate` compares with "
            "it, the service does not offer it"
        )
    return choice


def _objective(name: str | None, load: Load) -> Objective:
    """Raises BadLoad where the load has nothing that it could measure."""
    named = [objective for objective in OBJECTIVES if objective.name == name]
    if not named:
        return usual_objective(load)
    if not named[0].applies(load):
        raise BadLoad(f"--objective {name}: {named[0].needs}")
    return named[0]


def _advise(question: Question, workers: Workers) -> Advice:
    columns = (TextColumn("{task.completed} candidates tried"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        advisor = Advisor(question, workers, lambda tried: bar.update(task, completed=tried))
        return advisor.advise()


def _show(report: Report) -> None:
    console = Console(highlight=False)
    for line in report.heading():
        console.print(line)
    console.print()
    console.print(report.table())
    console.print(f"\n{report.verdict()}\n")
    print(report.settings)
