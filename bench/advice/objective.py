"""What an operator wants most, as one figure of a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf, log
from typing import NamedTuple

from bench.simulation.demand import Demand, Load
from bench.simulation.figures import SLO, grouped
from bench.simulation.record import Record

LEAST_S = 1e-9
NOISE = {False: 0.01, True: log(1.1)}  # of a share, of seconds: margins, see below


class Score(NamedTuple):
    """Of a whole run, and of the requests of the first and the second half of the trace."""

    whole: float
    halves: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Objective:
    """`of` gives a figure of some requests of a run: a share, which is the better the higher,
    or `seconds`, the lower."""

    name: str
    title: str
    of: Callable[[Sequence[Record], SLO], float]
    seconds: bool = False

    def score(self, records: Sequence[Record], slo: SLO) -> Score:
        """Of a run."""
        middle = len(records) // 2
        halves = (records[:middle] or records, records[middle:])
        return Score(self.of(records, slo), (self.of(halves[0], slo), self.of(halves[1], slo)))

    def better(self, one: Score, other: Score) -> bool:
        """Whether one is ahead by more than the noise: on the whole by a point or, of seconds,
        a tenth, which other draws of the same traffic differ by; and in neither half of the
        trace is it behind by as much as it is ahead on the whole."""
        ahead = self._margin(one.whole, other.whole)
        halves = map(self._margin, one.halves, other.halves)
        return ahead > NOISE[self.seconds] and all(half > -ahead for half in halves)

    def _margin(self, one: float, other: float) -> float:
        """How far one is ahead: points of a share, the logarithm of a ratio of seconds."""
        if not self.seconds or inf in (one, other):
            return 0.0 if one == other else (other - one if self.seconds else one - other)
        return log(max(other, LEAST_S) / max(one, LEAST_S))

    def shown(self, score: Score) -> str:
        """For people."""
        return f"{score.whole:.3g} s" if self.seconds else f"{score.whole:.1%}"


def _goodput(records: Sequence[Record], slo: SLO) -> float:
    return sum(map(slo.met, records)) / len(records)


def _deadlines(records: Sequence[Record], slo: SLO) -> float:
    """Of the whole answer, of the first token, and the pace: of those that had any, all met."""
    timed = [record for record in records if is_timed(record.demand)]
    met = (r.answered and r.first_token_met and r.pace_met for r in timed)
    return sum(met) / len(timed) if timed else 1.0


def is_timed(demand: Demand) -> bool:
    """Whether it has a deadline or wants a pace."""
    wishes = (demand.deadline_s, demand.first_token_deadline_s, demand.tokens_per_second)
    return any(wish is not None for wish in wishes)


def _urgent(records: Sequence[Record], slo: SLO) -> float:
    """A request without a first token counts as one that never came."""
    highest = max(record.demand.priority for record in records)
    urgent = [record for record in records if record.demand.priority == highest]
    waited = sorted(inf if record.ttft_s is None else record.ttft_s for record in urgent)
    return waited[ceil(0.95 * len(waited)) - 1]


def _tenants(records: Sequence[Record], slo: SLO) -> float:
    tenants = list(grouped(records, lambda r: r.demand.tenant).values()) or [list(records)]
    return sum(_goodput(found, slo) for found in tenants) / len(tenants)


GOODPUT = Objective("goodput", "requests within the SLO", _goodput)
DEADLINES = Objective("deadlines", "deadlines met", _deadlines)
URGENT = Objective("urgent", "p95 TTFT of the most urgent", _urgent, seconds=True)
TENANTS = Objective("tenants", "requests within the SLO, mean of the tenants", _tenants)
OBJECTIVES = (GOODPUT, DEADLINES, URGENT, TENANTS)


def usual_objective(load: Load) -> Objective:
    """Deadlines or paces where there are some, else the urgent, the tenants, or goodput."""
    demands = load.demands
    if any(map(is_timed, demands)):
        return DEADLINES
    if len({demand.priority for demand in demands}) > 1:
        return URGENT
    return TENANTS if len({demand.tenant for demand in demands}) > 1 else GOODPUT
