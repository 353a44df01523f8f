"""What a simulated run comes to, whole and by class."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from bench.samples import Spread, spread
from bench.simulation.costs import Work
from bench.simulation.profile import Profile
from bench.simulation.record import Record
from bench.simulation.run import Gauge, Run

USUAL_CONTEXT = 1024
FULL_STEPS, DECODE_STEPS = 5, 3


class SLO(msgspec.Struct, frozen=True):
    """What a caller is content with, seconds."""

    ttft_s: float
    tpot_s: float

    def met(self, record: Record) -> bool:
        """Answered whole, and in time."""
        if not record.answered or (record.ttft_s or 0.0) > self.ttft_s:
            return False
        return (record.tpot_s or 0.0) <= self.tpot_s


def usual_slo(profile: Profile) -> SLO:
    """One that the machine of the profile meets while it is not overloaded: a first token
    within five steps full of prefill, and a token within three steps of as many decode rows as
    there may be, of a usual context. Two digits, which is all that such a rule is worth."""
    chunk = min(profile.max_step_tokens, profile.context_tokens)
    prefill, decode = Work(), Work()
    prefill.add(0, chunk)
    for _ in range(profile.max_rows):
        decode.add(min(USUAL_CONTEXT, profile.context_tokens) - 1, 1)
    return SLO(
        ttft_s=float(f"{FULL_STEPS * profile.costs.seconds(prefill):.2g}"),
        tpot_s=float(f"{DECODE_STEPS * profile.costs.seconds(decode):.2g}"),
    )


class Class(msgspec.Struct, frozen=True):
    """Requests of one class. Latencies are of those that were answered whole; `stall_s` is
    each one's longest gap between tokens, `mean_total_s` the mean time to the end; `good` met
    the SLO; `deadlines_met`, `first_tokens_met` and `paces_met` of those that had a deadline,
    one for the first token or a wanted pace, None when none had."""

    name: str
    requests: int
    ended: dict[str, int]
    output_tokens: int
    queue_s: Spread | None
    ttft_s: Spread | None
    tpot_s: Spread | None
    stall_s: Spread | None
    latency_s: Spread | None
    mean_total_s: float | None
    good: float
    deadlines_met: float | None
    first_tokens_met: float | None
    paces_met: float | None


class Figures(msgspec.Struct, frozen=True):
    """One run. Tokens of swapped pages are whole pages, out and in counted each. `cached` is
    the share of prompt tokens that the prefix cache had at first admission. `goodput_per_s`
    are requests a second within the SLO. `waste` is the share of held token slots, weighed
    by time, without a token, `waste_peak` the largest after any step. `evictions` by mode
    and cause."""

    scheduler: str
    ended_s: float
    output_tokens_per_s: float
    requests_per_s: float
    goodput_per_s: float
    steps: int
    batch: float
    busy: float
    computed_prompt_tokens: int
    cached: float
    recomputed_tokens: int
    swapped_tokens: int
    preemptions: int
    evictions: dict[str, int]
    short_rows: int
    plan_faults: int
    waste: float
    waste_peak: float
    kv_peak: float
    classes: list[Class]
    gauges: list[Gauge]


def figures(run: Run, profile: Profile, slo: SLO) -> Figures:
    """The figures of a run."""
    totals, ended_s = run.totals, run.ended_s
    good = sum(map(slo.met, run.records))
    prompts = sum(record.demand.arrival.prompt_tokens for record in run.records)
    cached = sum(record.receipt.cached_tokens for record in run.records if record.receipt)
    return Figures(
        scheduler=run.label,
        ended_s=ended_s,
        output_tokens_per_s=_share(totals.output_tokens, ended_s),
        requests_per_s=_share(sum(r.answered for r in run.records), ended_s),
        goodput_per_s=_share(good, ended_s),
        steps=totals.steps,
        batch=_share(totals.rows, totals.steps),
        busy=_share(totals.busy_s, ended_s),
        computed_prompt_tokens=totals.input_tokens,
        cached=_share(cached, prompts),
        recomputed_tokens=totals.recomputed_tokens,
        swapped_tokens=totals.swapped_pages * profile.page_size,
        preemptions=totals.preemptions,
        evictions=dict(sorted(totals.evictions.items())),
        short_rows=totals.short_rows,
        plan_faults=totals.plan_faults,
        waste=run.waste.share,
        waste_peak=run.waste.peak,
        kv_peak=_share(totals.peak_pages, profile.device_pages),
        classes=classes(run.records, slo),
        gauges=run.gauges,
    )


def classes(records: Sequence[Record], slo: SLO) -> list[Class]:
    """All requests, then each priority and each tenant where there are several."""
    found = [_class("all", records, slo)]
    for name, members in grouped(records, lambda r: f"priority {r.demand.priority}").items():
        found.append(_class(name, members, slo))
    for name, members in grouped(records, lambda r: f"tenant {r.demand.tenant}").items():
        found.append(_class(name, members, slo))
    return found


def grouped(
    records: Sequence[Record], name: Callable[[Record], str]
) -> dict[str, list[Record]]:
    """Records by name, sorted, numbers by size; empty when all have the same."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(name(record), []).append(record)
    if len(groups) < 2:
        return {}
    return dict(sorted(groups.items(), key=lambda item: _by_size(item[0])))


def _by_size(name: str) -> list[tuple[int, str]]:
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name)]


def _class(name: str, records: Sequence[Record], slo: SLO) -> Class:
    answered = [record for record in records if record.answered]
    return Class(
        name=name,
        requests=len(records),
        ended=dict(Counter(r.finish.value for r in records if r.finish is not None)),
        output_tokens=sum(record.tokens for record in records),
        queue_s=spread([record.queue_s for record in answered]),
        ttft_s=spread([record.ttft_s for record in answered]),
        tpot_s=spread([record.tpot_s for record in answered]),
        stall_s=spread([record.stall_s for record in answered if record.tokens > 1]),
        latency_s=spread([record.ended_s - record.at_s for record in answered]),
        mean_total_s=_mean([record.ended_s - record.at_s for record in answered]),
        good=_share(sum(map(slo.met, records)), len(records)),
        deadlines_met=_met(r.answered for r in records if r.demand.deadline_s is not None),
        first_tokens_met=_met(
            r.first_token_met for r in records if r.demand.first_token_deadline_s is not None
        ),
        paces_met=_met(r.pace_met for r in records if r.demand.tokens_per_second is not None),
    )


def _met(wishes: Iterable[bool]) -> float | None:
    found = list(wishes)
    return sum(found) / len(found) if found else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
