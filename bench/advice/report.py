"""Advice for people and for programs."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isinf

from rich.table import Table
from rich.text import Text

from bench.advice.advice import Advice, Question, decided_by
from bench.advice.objective import GOODPUT, TENANTS
from bench.advice.settings import as_toml
from bench.simulation.capacity import Capacity
from bench.simulation.demand import Load
from bench.simulation.tables import slo_line

SHOWN = 8


@dataclass(frozen=True, slots=True)
class Report:
    """What was asked and found. `capacity` is why there is none where there is none."""

    question: Question
    load: Load
    advice: Advice
    capacity: Capacity | str

    @property
    def settings(self) -> str:
        """Lines of the configuration file."""
        return as_toml(self.advice.best.candidate, self.question.profile)

    def heading(self) -> Iterator[str]:
        """What was simulated, and what counts."""
        profile, objective = self.question.profile, self.question.objective
        yield f"{self.load.name}; {profile.name}: {profile.source}, {profile.note}"
        if isinstance(self.capacity, str):
            yield f"no capacity: {self.capacity}"
        else:
            per_s, times = self.capacity.requests_per_s, self.capacity.times
            yield (
                f"{per_s / times:.3g} requests/s; capacity {per_s:.3g} requests/s, "
                f"{times:.3g} times the trace"
            )
        yield f"what matters: {objective.title}"
        if objective in (GOODPUT, TENANTS):
            yield slo_line(self.question.slo)

    def table(self) -> Table:
        """The best candidates, the first of them first."""
        measures, advice = self.question.measures, self.advice
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("candidate")
        for objective, times in measures:
            rate = "as it is" if times == 1 else f"at {times:g} times"
            own = objective is self.question.objective
            table.add_column(rate if own else "in SLO", justify="right")
        for result in advice.ranked[:SHOWN]:
            both = zip(measures, result.scores, strict=True)
            equal = "equal to the first" if result in advice.equal else ""
            scores = (measure.objective.shown(score) for measure, score in both)
            table.add_row(Text(result.candidate.label), *scores, equal)
        return table

    def verdict(self) -> str:
        """The best and its margin, or that none is."""
        best, advice = self.advice.best, self.advice
        name = best.candidate.label
        if not advice.behind:
            return (
                "No candidate is better than another by more than the noise; "
                f"{name} is the plainest."
            )
        other = advice.behind[0]
        measure = decided_by(self.question.measures, best, other)
        assert measure is not None, "a candidate is behind by some measure"
        index = self.question.measures.index(measure)
        shown = measure.objective.shown
        equal = f" {len(advice.equal)} more are equal within the noise." if advice.equal else ""
        return (
            f"{name}: {measure.title} {shown(best.scores[index])}; next "
            f"{other.candidate.label}: {shown(other.scores[index])}.{equal}"
        )

    def plain(self) -> dict[str, object]:
        """For JSON; a score that is infinite is null."""
        capacity = self.capacity
        return {
            "load": self.load.name,
            "profile": self.question.profile.name,
            "capacity": None if isinstance(capacity, str) else capacity.times,
            "objective": self.question.objective.name,
            "settings": self.settings,
            "measures": [measure.title for measure in self.question.measures],
            "ranked": [
                {
                    "candidate": result.candidate.label,
                    "equal_to_first": result in self.advice.equal,
                    "scores": [None if isinf(s.whole) else s.whole for s in result.scores],
                }
                for result in self.advice.ranked
            ],
        }
