"""Finds which strategy and limits serve a trace best, by simulation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.advice.candidates import Change, changed, changes, strategies
from bench.advice.objective import GOODPUT, Objective, Score
from bench.advice.trial import Candidate, Traffic, Trial, run
from bench.simulation.choice import Choice
from bench.simulation.figures import SLO
from bench.simulation.parallel import Workers
from bench.simulation.profile import Profile

MOST_CHANGES = 3


class Measure(NamedTuple):
    """What candidates are compared by: an objective at a multiple of the trace's rate."""

    objective: Objective
    times: float

    @property
    def title(self) -> str:
        rate = "" if self.times == 1 else f" at {self.times:g} times the rate"
        return f"{self.objective.title}{rate}"


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be served, on what, and what matters. `what_if` is another multiple of the
    trace's rate; `more` are strategies to try with the usual ones."""

    traffic: Traffic
    profile: Profile
    objective: Objective
    slo: SLO
    what_if: float = 1.5
    more: Sequence[Choice] = ()

    @property
    def measures(self) -> list[Measure]:
        """Each tells between candidates that those before it find equal: what matters at the
        trace's rate, at the multiple, and how many requests of all are within the SLO."""
        found = [Measure(self.objective, 1.0), Measure(self.objective, self.what_if)]
        return list(dict.fromkeys([*found, Measure(GOODPUT, 1.0)]))


@dataclass(frozen=True, slots=True)
class Result:
    """A candidate's scores, one for each measure of the question."""

    candidate: Candidate
    scores: Sequence[Score]


@dataclass(frozen=True, slots=True)
class Advice:
    """The best, those that are equal to it within the noise, and those behind, the best of
    them first."""

    best: Result
    equal: Sequence[Result]
    behind: Sequence[Result]

    @property
    def ranked(self) -> list[Result]:
        return [self.best, *self.equal, *self.behind]


class Advisor:
    """Tries candidates. `progress` hears how many were tried."""

    def __init__(
        self, question: Question, workers: Workers, progress: Callable[[int], object]
    ) -> None:
        self._question = question
        self._workers = workers
        self._progress = progress
        self._results: dict[str, Result] = {}

    def advise(self) -> Advice:
        """Strategies first, then one limit of the best after the other, as far as changing it
        helps. Raises BadLoad, OSError, Stalled or BadPlans."""
        question = self._question
        load = question.traffic.load(1.0, question.profile)
        self._try([*strategies(load), *map(Candidate, question.more)])
        best = self._best(self._results.values())
        for change in changes(question.slo):
            best = self._follow(best, change)
        return self._advice()

    def _follow(self, best: Result, change: Change) -> Result:
        """Repeats a change of the best while it helps."""
        for _ in range(MOST_CHANGES):
            candidate = changed(best.candidate, change, self._question.profile)
            if candidate is None:
                break
            self._try([candidate])
            found = self._results[candidate.label]
            if decided_by(self._question.measures, found, best) is None:
                break
            best = found
        return best

    def _try(self, candidates: Sequence[Candidate]) -> None:
        """Those that were not tried yet."""
        named = {one.label: one for one in candidates}
        new = [one for label, one in named.items() if label not in self._results]
        trials = [trial for one in new for trial in self._trials(one)]
        scores: dict[tuple[str, Measure], Score] = {}
        for trial, found in self._workers.each(run, trials):
            for objective, score in zip(trial.objectives, found, strict=True):
                scores[trial.candidate.label, Measure(objective, trial.times)] = score
        for one in new:
            measures = self._question.measures
            found = [scores[one.label, measure] for measure in measures]
            self._results[one.label] = Result(one, found)
        self._progress(len(self._results))

    def _trials(self, candidate: Candidate) -> list[Trial]:
        by_times: dict[float, list[Objective]] = {}
        for objective, times in self._question.measures:
            by_times.setdefault(times, []).append(objective)
        asked = self._question
        return [
            Trial(candidate, times, asked.traffic, asked.profile, objectives, asked.slo)
            for times, objectives in by_times.items()
        ]

    def _best(self, results: Iterable[Result]) -> Result:
        """The first that none after it is better than: of equals the plainest."""
        found, *others = results
        for other in others:
            if decided_by(self._question.measures, other, found) is not None:
                found = other
        return found

    def _advice(self) -> Advice:
        left, ranked = list(self._results.values()), []
        while left:
            ranked.append(self._best(left))
            left.remove(ranked[-1])
        best, *others = ranked
        measures = self._question.measures
        equal = [one for one in others if decided_by(measures, best, one) is None]
        return Advice(best, equal, [one for one in others if one not in equal])


def decided_by(measures: Sequence[Measure], one: Result, other: Result) -> Measure | None:
    """The first measure that tells between two, where it says that one is better; None where it
    says that the other is, or no measure tells."""
    for measure, a, b in zip(measures, one.scores, other.scores, strict=True):
        if measure.objective.better(a, b):
            return measure
        if measure.objective.better(b, a):
            return None
    return None
