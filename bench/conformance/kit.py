"""Asks a strategy everything it always promises and everything it declares.

| promise | asked on | of |
|---|---|---|
| legal, progress | finite loads | all |
| deterministic | finite loads, twice, and rebuilt against exchanged | all |
| resumes swapped | loads that a swapping strategy leaves in the middle | all |
| no starvation | sieges: rivals without end | who declares it |
| work conserving | finite loads | who declares it |
| bounded recompute | long answers in tight pools; sieges | who declares it |
| steady | loads that last for hours (`steady`) | all |
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from hypothesis import strategies as st

from bench.conformance import draws, questions, steady
from bench.conformance.breach import Breach
from bench.conformance.planning_cost import NotTimed, plan_costs
from bench.conformance.questions import Make
from bench.conformance.search import search
from bench.conformance.verdict import Report, Verdict, in_order
from schedulers.interface import ALWAYS, Promise


class Case(Protocol):
    """Anything that a question is asked on."""

    def script(self) -> Iterator[str]: ...


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to look. `horizon_s`: virtual seconds that anybody may be without a token.
    `recomputes`: how many times over a request may be computed again. `shrinks`: smaller
    cases tried once one broke. `hours`: virtual hours of the load in which shares of the
    service must stay. `only`: nothing else is asked."""

    examples: int = 100
    seed: int = 0
    horizon_s: float = 3600.0
    recomputes: int = 8
    shrinks: int = 400
    hours: float = 0.5
    only: frozenset[Promise] = frozenset(Promise)


@dataclass(frozen=True, slots=True)
class Question:
    """One way to ask for some promises. With `all_cases` there are only these few, long
    ones, none of which can be made smaller."""

    promises: tuple[Promise, ...]
    cases: st.SearchStrategy[Any]
    ask: Callable[[Any], None]
    all_cases: int | None = None


def check(name: str, options: dict[str, Any], make: Make, effort: Effort) -> Report:
    """Ask everything. `make` gives a new instance of the strategy with those options."""
    declared = frozenset(make().promises) | ALWAYS
    verdicts: dict[Promise, Verdict] = {}
    for question in _questions(make, effort):
        _pursue(question, declared, effort, verdicts)
    return Report(name, options, list(in_order(verdicts)))


def _questions(make: Make, effort: Effort) -> list[Question]:
    horizon_s, most = effort.horizon_s, effort.recomputes
    starves = partial(questions.starves_nobody, make, horizon_s=horizon_s)
    thrashes = partial(
        questions.bounds_recompute_in_siege, make, horizon_s=horizon_s, most=most
    )
    recompute = (Promise.BOUNDED_RECOMPUTE,)
    return [
        Question(
            (Promise.LEGAL, Promise.PROGRESS),
            draws.loads(),
            partial(questions.legal_and_progressing, make),
        ),
        Question(
            (Promise.DETERMINISTIC,), draws.loads(), partial(questions.deterministic, make)
        ),
        Question(
            (Promise.RESUMES_SWAPPED,),
            draws.abandoned(),
            partial(questions.resumes_swapped, make),
        ),
        Question((Promise.NO_STARVATION,), draws.sieges(), starves),
        Question(
            (Promise.WORK_CONSERVING,), draws.loads(), partial(questions.conserves_work, make)
        ),
        Question(
            recompute, draws.tight(), partial(questions.bounds_recompute, make, most=most)
        ),
        Question(recompute, draws.sieges(), thrashes),
        _lasting(make, effort.hours),
    ]


def _lasting(make: Make, hours: float) -> Question:
    cases = steady.cases(hours)

    def ask(case: steady.Hours) -> None:
        case.ask(make, case.load)

    return Question((Promise.STEADY,), st.sampled_from(cases), ask, len(cases))


def _pursue(
    question: Question,
    declared: frozenset[Promise],
    effort: Effort,
    verdicts: dict[Promise, Verdict],
) -> None:
    """Ask, unless nobody promised it or the strategy's plans are known not to work."""
    why = _why_not(question, declared, effort.only, verdicts)
    if why:
        for promise in question.promises:
            verdicts.setdefault(promise, Verdict(promise, None, why=why))
        return
    examples, shrinks = effort.examples, effort.shrinks
    if question.all_cases is not None:
        examples, shrinks = question.all_cases, 0
    outcome = search(question.cases, question.ask, examples, effort.seed, shrinks)
    if outcome.breach:
        broken = outcome.breach.promise
        verdicts[broken] = _broken(outcome.breach, outcome.case, outcome.tried)
        why = f"not to the end: {broken.value} broke first"
    for promise in question.promises:
        if outcome.breach is None or promise is not outcome.breach.promise:
            _add(verdicts, promise, outcome.tried, why)


def _why_not(
    question: Question,
    declared: frozenset[Promise],
    only: frozenset[Promise],
    verdicts: dict[Promise, Verdict],
) -> str:
    if not declared & set(question.promises):
        return "not declared in `promises`"
    if not only & set(question.promises):
        return "not wanted"
    for promise in (Promise.LEGAL, Promise.PROGRESS):
        if promise in verdicts and verdicts[promise].held is False:
            return f"{promise.value} is broken: no load runs to its end"
    if any(verdicts[p].held is False for p in question.promises if p in verdicts):
        return "broken already"
    return ""


def _broken(breach: Breach, case: Case | None, tried: int) -> Verdict:
    script = tuple(case.script()) if case else ()
    return Verdict(breach.promise, False, tried, breach.why, script, breach.story)


def _add(verdicts: dict[Promise, Verdict], promise: Promise, tried: int, why: str) -> None:
    """A promise that is asked in two ways has held when it did in both."""
    before = verdicts.get(promise)
    if before and before.held is False:
        return
    tried += before.tried if before else 0
    verdicts[promise] = Verdict(promise, None if why else True, tried, why)


__all__ = ["Effort", "NotTimed", "check", "plan_costs"]
