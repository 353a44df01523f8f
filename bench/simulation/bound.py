"""What no schedule can exceed: requests on time, throughput and time to the end.

A clairvoyant engine knows what will arrive and how long answers will be. It may split a request
at will, computes each token in a step of the best mixture (`tariff`), finds each block of a
prompt in the cache that an earlier request names (`least_work`), and a part of a request counts
as that part (`fluid`). A request that has a deadline is answered if its last step begins before
it, so the last step is free. A request that cannot make it alone is lost.

Why it is a bound: what requests pay adds up to at most the time of the steps that compute
them, whichever schedule that was; and a request that is on time has been computed in its
window. Requests that are late or have no deadline cost nothing here.

What it leaves out, so that it may be too high: that a request computes one token at a time and
so cannot catch up in a burst, prefill that waits for a step to end, whole requests, pages that
requests hold between their steps, and that blocks are evicted. One thing could be had for less
than it says: `StepModel` charges nothing for reading a context during prefill, so a request
that is preempted and computes its last two tokens again pays less for that token, if its
context is long. No strategy lives on that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench.simulation.demand import Load
from bench.simulation.figures import SLO
from bench.simulation.fluid import BINS, Floats, least_total_s, most_on_time
from bench.simulation.least_work import (
    Needs,
    alone_s,
    least_work_s,
    needs,
    prefill_alone_s,
)
from bench.simulation.loads import BadLoad
from bench.simulation.profile import Profile
from bench.simulation.tariff import Tariff, tariffs

Bools = NDArray[np.bool_]
COARSE_BINS = 150
ROUNDING = 1e-6


class Bound(msgspec.Struct, frozen=True):
    """Shares of requests: of those with a deadline, and of all in the SLO. Output tokens a
    second at most, and mean seconds to the end at least, where all are answered: None where
    some have deadlines."""

    deadlines_met: float | None
    in_slo: float
    output_tokens_per_s: float | None
    mean_total_s: float | None


def bound(load: Load, profile: Profile, slo: SLO) -> Bound:
    """Of a load with arrival times. Raises BadLoad for a closed loop."""
    expect_arrivals(load)
    whole, choice = needs(load, profile), tariffs(profile)
    start_s = np.array([demand.arrival.at_s for demand in load.demands])
    until_s = np.array([_or_never(demand.deadline_s) for demand in load.demands])
    timed, fits = np.isfinite(until_s), _fits_the_pool(whole, profile)
    by_deadline = _by_deadline(whole, start_s, until_s, profile).only(timed & fits)
    met = by_deadline.most(profile, choice) if timed.any() else 0
    good = _in_slo(whole, start_s, slo, profile).only(fits).most(profile, choice)
    total_s = output_per_s = None
    if fits.all() and not timed.any():
        total_s = _mean_total_s(whole, start_s, profile, choice)
        output_per_s = _output_per_s(whole, start_s, profile, choice)
    return Bound(
        met / int(timed.sum()) if timed.any() else None,
        min(good, met + int((~timed).sum())) / len(load.demands),
        output_per_s,
        total_s,
    )


def expect_arrivals(load: Load) -> None:
    """Raises BadLoad for a closed loop, whose arrivals depend on the schedule."""
    if load.clients is not None:
        raise BadLoad(f"{load.name}: clients of a closed loop wait, so it has no bound")


@dataclass(frozen=True, slots=True)
class Windows:
    """What is to be computed, from when on, how long it may take, and how long a decode step
    may on average."""

    needs: Needs
    start_s: Floats
    window_s: Floats
    step_s: Floats

    def only(self, wanted: Bools) -> "Windows":
        """Without the requests that nothing is gained by."""
        return replace(self, window_s=np.where(wanted, self.window_s, -1.0))

    def most(self, profile: Profile, choice: Sequence[Tariff]) -> int:
        """How many can be done at most: the least of what the tariffs say."""
        lost = alone_s(self.needs, profile) > self.window_s + ROUNDING
        works = [least_work_s(self.needs, self.step_s, profile, one) for one in choice]
        works = [np.where(lost, np.inf, work) for work in works]
        counts = [self._most(work, COARSE_BINS) for work in works]
        best = int(np.argmin(counts))
        return int(min(counts[best], self._most(works[best], BINS)) + ROUNDING)

    def _most(self, work_s: Floats, bins: int) -> float:
        return most_on_time(self.start_s, self.start_s + self.window_s, work_s, bins)


def _by_deadline(whole: Needs, start_s: Floats, until_s: Floats, profile: Profile) -> Windows:
    early = whole.without_the_last_step(profile)
    left_s = until_s - prefill_alone_s(early, profile)
    return Windows(early, start_s, until_s, left_s / np.maximum(1.0, early.decodes))


def _in_slo(whole: Needs, start_s: Floats, slo: SLO, profile: Profile) -> Windows:
    late = prefill_alone_s(whole, profile) > slo.ttft_s + ROUNDING
    window_s = np.where(late, -1.0, slo.ttft_s + whole.decodes * slo.tpot_s)
    return Windows(whole, start_s, window_s, np.full_like(start_s, slo.tpot_s))


def _mean_total_s(
    whole: Needs, start_s: Floats, profile: Profile, choice: Sequence[Tariff]
) -> float:
    never_s = np.full_like(start_s, np.inf)
    totals_s = [float(alone_s(whole, profile).sum())]
    for one in choice:
        work_s = least_work_s(whole, never_s, profile, one)
        totals_s.append(least_total_s(start_s.tolist(), work_s.tolist()))
    return max(totals_s) / start_s.size


def _output_per_s(
    whole: Needs, start_s: Floats, profile: Profile, choice: Sequence[Tariff]
) -> float:
    """All output over the least time to the end of all: from each arrival on, what arrives
    then and later is still to be done."""
    never_s = np.full_like(start_s, np.inf)
    ends_s = [float((start_s + alone_s(whole, profile)).max())]
    for one in choice:
        work_s = least_work_s(whole, never_s, profile, one)
        ends_s.append(float((start_s + np.cumsum(work_s[::-1])[::-1]).max()))
    return float((whole.decodes + 1).sum()) / max(ends_s)


def _or_never(seconds: float | None) -> float:
    return np.inf if seconds is None else seconds


def _fits_the_pool(whole: Needs, profile: Profile) -> Bools:
    pages = np.ceil((whole.prompt + whole.decodes) / profile.page_size)
    found: Bools = pages <= profile.device_pages
    return found
