"""What an operator wants most, as one figure of a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf, log, sqrt
from typing import NamedTuple

from bench.simulation.demand import Demand, Load
from bench.simulation.figures import SLO, grouped
from bench.simulation.record import Record

LEAST_S = 1e-9
POINT, TENTH = 0.01, log(1.1)


class Score(NamedTuple):
    """Of a whole run, and of the requests of the first and the second half of the trace;
    `requests` are those that it is of."""

    whole: float
    halves: tuple[float, float]
    requests: int


class Figure(NamedTuple):
    """Of some requests of a run, of which `requests` count."""

    value: float
    requests: int


@dataclass(frozen=True, slots=True)
class Objective:
    """`of` gives a figure of some requests of a run: a share, which is the better the higher,
    or `seconds`, the lower. It `applies` to a load that has what it `needs`."""

    name: str
    title: str
    of: Callable[[Sequence[Record], SLO], Figure]
    applies: Callable[[Load], bool]
    needs: str = ""
    seconds: bool = False

    def score(self, records: Sequence[Record], slo: SLO) -> Score:
        """Of a run."""
        middle = len(records) // 2
        whole, first = self.of(records, slo), self.of(records[:middle] or records, slo)
        second = self.of(records[middle:], slo)
        return Score(whole.value, (first.value, second.value), whole.requests)

    def better(self, one: Score, other: Score) -> bool:
        """Whether one is ahead by more than the noise on the whole, and in neither half of the
        trace behind by as much as it is ahead on the whole."""
        ahead = self._margin(one.whole, other.whole)
        halves = map(self._margin, one.halves, other.halves)
        return ahead > self._noise(one.requests) and all(half > -ahead for half in halves)

    def _noise(self, requests: int) -> float:
        """What other draws of the same traffic differ by: of a share a point at least, of
        seconds a tenth, and the more the fewer requests there are (of a 95th percentile few
        count)."""
        if self.seconds:
            return max(TENTH, 2 / sqrt(requests))
        return max(POINT, 1 / sqrt(requests))

    def _margin(self, one: float, other: float) -> float:
        """How far one is ahead: points of a share, the logarithm of a ratio of seconds."""
        if not self.seconds or inf in (one, other):
            return 0.0 if one == other else (other - one if self.seconds else one - other)
        return log(max(other, LEAST_S) / max(one, LEAST_S))

    def shown(self, score: Score) -> str:
        """For people."""
        return f"{score.whole:.3g} s" if self.seconds else f"{score.whole:.1%}"


def _goodput(records: Sequence[Record], slo: SLO) -> Figure:
    return Figure(sum(map(slo.met, records)) / len(records), len(records))


def _deadlines(records: Sequence[Record], slo: SLO) -> Figure:
    """Of the whole answer, of the first token, and the pace: of those that had any, all met."""
    timed = [record for record in records if is_timed(record.demand)]
    met = sum(r.answered and r.first_token_met and r.pace_met for r in timed)
    return Figure(met / len(timed), len(timed)) if timed else Figure(1.0, len(records))


def _urgent(records: Sequence[Record], slo: SLO) -> Figure:
    """A request without a first token counts as one that never came."""
    highest = max(record.demand.priority for record in records)
    urgent = [record for record in records if record.demand.priority == highest]
    waited = sorted(inf if record.ttft_s is None else record.ttft_s for record in urgent)
    return Figure(waited[ceil(0.95 * len(waited)) - 1], len(urgent))


def _tenants(records: Sequence[Record], slo: SLO) -> Figure:
    """Each tenant counts alike, so as much as the smallest tells."""
    tenants = list(grouped(records, lambda r: r.demand.tenant).values()) or [list(records)]
    shares = [_goodput(found, slo) for found in tenants]
    mean = sum(share.value for share in shares) / len(shares)
    return Figure(mean, min(share.requests for share in shares))


def is_timed(demand: Demand) -> bool:
    """Whether it has a deadline or wants a pace."""
    wishes = (demand.deadline_s, demand.first_token_deadline_s, demand.tokens_per_second)
    return any(wish is not None for wish in wishes)


def has_deadlines(load: Load) -> bool:
    """Whether any request has a deadline or wants a pace."""
    return any(map(is_timed, load.demands))


def has_priorities(load: Load) -> bool:
    """Whether some requests are more urgent than others."""
    return len({demand.priority for demand in load.demands}) > 1


def has_tenants(load: Load) -> bool:
    """Whether there are several tenants."""
    return len({demand.tenant for demand in load.demands}) > 1


DEADLINES = Objective(
    "deadlines",
    "deadlines met",
    _deadlines,
    has_deadlines,
    "no request has a deadline; see --deadline-slack, --first-token-slack and --pace",
)
URGENT = Objective(
    "urgent",
    "p95 TTFT of the most urgent",
    _urgent,
    has_priorities,
    "all requests have the same priority; see --priorities",
    seconds=True,
)
TENANTS = Objective(
    "tenants",
    "requests within the SLO, mean of the tenants",
    _tenants,
    has_tenants,
    "all requests have the same tenant; see --tenants",
)
GOODPUT = Objective("goodput", "requests within the SLO", _goodput, lambda load: True)
OBJECTIVES = (DEADLINES, URGENT, TENANTS, GOODPUT)


def usual_objective(load: Load) -> Objective:
    """Deadlines or paces where there are some, else the urgent, the tenants, or goodput."""
    return next(objective for objective in OBJECTIVES if objective.applies(load))
