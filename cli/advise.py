"""Shows which strategy and limits serve a trace best."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isinf

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from bench.advice.advice import Advice, Advisor, Question, decided_by
from bench.advice.objective import OBJECTIVES, Objective, usual_objective
from bench.advice.settings import as_toml
from bench.advice.trial import Traffic
from bench.simulation.catalogue import find_profile
from bench.simulation.demand import Load
from bench.simulation.engine import Stalled
from bench.simulation.figures import SLO, usual_slo
from bench.simulation.loads import Cut
from bench.simulation.parallel import Workers
from bench.simulation.saturation import capacity
from bench.simulation.tables import slo_line
from cli.as_json import print_json
from cli.simulate import MISTAKES, limited, line_of, read_choice
from cli.simulated_load import read_rules

SHOWN = 8


@dataclass(frozen=True, slots=True)
class Wanted:
    """The command line; see `cli.advising` for what each field means."""

    trace: str
    cut: Cut
    profile: str
    limits: Sequence[str]
    priorities: str | None
    tenants: str | None
    slack: float | None
    first_token_slack: float | None
    pace: float | None
    timed_share: float
    told: bool
    objective: str | None
    schedulers: Sequence[str]
    what_if: float
    ttft_s: float | None
    tpot_s: float | None
    seed: int
    jobs: int
    as_json: bool


def run_advice(wanted: Wanted) -> int:
    """Exit code: 0 done, 1 a scheduler stands still, 2 a mistake in the call."""
    try:
        question = _question(wanted)
        load = question.traffic.load(1.0, question.profile)
        times = capacity(load, question.profile)
        advice = _advise(question, wanted.jobs)
    except MISTAKES as error:
        print(f"walkway: {line_of(error)}", file=sys.stderr)
        return 2
    except Stalled as error:
        print(f"walkway: {error}", file=sys.stderr)
        return 1
    if wanted.as_json:
        print_json(_plain(advice, question, load, times))
    else:
        _show(advice, question, load, times)
    return 0


def _question(wanted: Wanted) -> Question:
    """Raises one of MISTAKES."""
    profile = limited(find_profile(wanted.profile), wanted.limits)
    rules = replace(
        read_rules(wanted.priorities, wanted.tenants, wanted.slack, wanted.seed),
        first_token_slack=wanted.first_token_slack,
        pace=wanted.pace,
        timed_share=wanted.timed_share,
        told=wanted.told,
    )
    traffic = Traffic(wanted.trace, wanted.cut, rules)
    usual = usual_slo(profile)
    slo = SLO(
        usual.ttft_s if wanted.ttft_s is None else wanted.ttft_s,
        usual.tpot_s if wanted.tpot_s is None else wanted.tpot_s,
    )
    return Question(
        traffic,
        profile,
        _objective(wanted.objective, traffic.load(1.0, profile)),
        slo,
        wanted.what_if,
        [read_choice(text) for text in wanted.schedulers],
    )


def _objective(name: str | None, load: Load) -> Objective:
    named = [objective for objective in OBJECTIVES if objective.name == name]
    return named[0] if named else usual_objective(load)


def _advise(question: Question, jobs: int) -> Advice:
    columns = (TextColumn("{task.completed} candidates tried"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar, Workers(jobs) as workers:
        task = bar.add_task("", total=None)
        advisor = Advisor(question, workers, lambda tried: bar.update(task, completed=tried))
        return advisor.advise()


def _show(advice: Advice, question: Question, load: Load, times: float) -> None:
    profile, objective = question.profile, question.objective
    console = Console(highlight=False)
    rate_per_s = len(load.demands) / load.demands[-1].arrival.at_s
    console.print(f"{load.name}; {profile.name}: {profile.source}, {profile.note}")
    console.print(
        f"{rate_per_s:.3g} requests/s; capacity {times * rate_per_s:.3g} requests/s, "
        f"{times:.3g} times the trace"
    )
    console.print(f"what matters: {objective.title}")
    if objective.name in ("goodput", "tenants"):
        console.print(slo_line(question.slo))
    console.print()
    console.print(_table(advice, question))
    console.print(f"\n{verdict(advice, question)}\n")
    print(as_toml(advice.best.candidate, profile))


def _table(advice: Advice, question: Question) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("candidate")
    for objective, times in question.measures:
        rate = "as it is" if times == 1 else f"at {times:g} times"
        table.add_column(rate if objective is question.objective else "in SLO", justify="right")
    for result in advice.ranked[:SHOWN]:
        scores = (
            measure.objective.shown(score)
            for measure, score in zip(question.measures, result.scores, strict=True)
        )
        equal = "equal to the first" if result in advice.equal else ""
        table.add_row(Text(result.candidate.label), *scores, equal)
    return table


def verdict(advice: Advice, question: Question) -> str:
    """The best and its margin, or that there is none."""
    best, name = advice.best, advice.best.candidate.label
    if not advice.behind:
        return (
            f"No candidate is better than another by more than the noise; {name} is plainest."
        )
    other = advice.behind[0]
    measure = decided_by(question.measures, best, other)
    assert measure is not None, "a candidate is behind by some measure"
    index = question.measures.index(measure)
    shown = measure.objective.shown
    equal = f" {len(advice.equal)} more are equal within the noise." if advice.equal else ""
    return (
        f"{name}: {measure.title} {shown(best.scores[index])}; next "
        f"{other.candidate.label}: {shown(other.scores[index])}.{equal}"
    )


def _plain(advice: Advice, question: Question, load: Load, times: float) -> dict[str, object]:
    return {
        "load": load.name,
        "profile": question.profile.name,
        "capacity": times,
        "objective": question.objective.name,
        "what_if": question.what_if,
        "settings": as_toml(advice.best.candidate, question.profile),
        "ranked": [
            {
                "candidate": result.candidate.label,
                "equal_to_first": result in advice.equal,
                "scores": [
                    None if isinf(score.whole) else score.whole for score in result.scores
                ],
            }
            for result in advice.ranked
        ],
        "measures": [measure.title for measure in question.measures],
    }
