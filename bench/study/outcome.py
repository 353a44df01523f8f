"""What a cell came to: the few figures that strategies are compared by."""

from collections.abc import Iterable, Sequence

import msgspec

from bench.samples import percentile
from bench.simulation.figures import SLO
from bench.simulation.record import Record
from bench.simulation.run import Run
from bench.study.service import least_share, service_difference

URGENT = 8  # from this priority on


class Outcome(msgspec.Struct, frozen=True):
    """Figures of one run, or what no run exceeds; None where there is none. Times are of
    requests that were answered whole. `others` are those that are not urgent, where some
    are, `others_share` is their least share of the tokens served in any tenth of the time in
    which requests arrive. `light` is the tenant with the fewest requests, `service_difference`
    how far the service of two tenants drifts apart. `cached` is the share of prompt tokens
    that the prefix cache had. `streams_met` had a first token and a pace as wanted."""

    output_tokens_per_s: float | None = None
    in_slo: float | None = None
    mean_completion_s: float | None = None
    completion_p99_s: float | None = None
    cached: float | None = None
    urgent_ttft_p95_s: float | None = None
    others_ttft_p95_s: float | None = None
    others_share: float | None = None
    deadlines_met: float | None = None
    first_tokens_met: float | None = None
    paces_met: float | None = None
    streams_met: float | None = None
    light_ttft_p95_s: float | None = None
    service_difference: float | None = None
    preemptions: int = 0
    plan_faults: int = 0


def outcome(run: Run, slo: SLO) -> Outcome:
    """The figures of a run."""
    records = run.records
    urgent = [record for record in records if record.demand.priority >= URGENT]
    others = [r for r in records if r.demand.priority < URGENT] if urgent else []
    tenants = _by_tenant(records)
    light = min(tenants.values(), key=len) if len(tenants) > 1 else []
    prompts = sum(record.demand.arrival.prompt_tokens for record in records)
    cached = sum(record.receipt.cached_tokens for record in records if record.receipt)
    answered = [record.ended_s - record.at_s for record in records if record.answered]
    timed = [record for record in records if record.demand.deadline_s is not None]
    started = [r for r in records if r.demand.first_token_deadline_s is not None]
    paced = [record for record in records if record.demand.tokens_per_second is not None]
    return Outcome(
        output_tokens_per_s=run.totals.output_tokens / run.ended_s if run.ended_s else 0.0,
        in_slo=sum(map(slo.met, records)) / len(records),
        mean_completion_s=sum(answered) / len(answered) if answered else None,
        completion_p99_s=percentile(answered, 99) if answered else None,
        cached=cached / prompts,
        urgent_ttft_p95_s=_ttft_p95_s(urgent),
        others_ttft_p95_s=_ttft_p95_s(others),
        others_share=least_share(records, others) if others else None,
        deadlines_met=_share(r.answered for r in timed),
        first_tokens_met=_share(r.first_token_met for r in started),
        paces_met=_share(r.pace_met for r in paced),
        streams_met=_share(r.first_token_met and r.pace_met for r in paced),
        light_ttft_p95_s=_ttft_p95_s(light),
        service_difference=service_difference(tenants),
        preemptions=run.totals.preemptions,
        plan_faults=run.totals.plan_faults,
    )


def _share(met: Iterable[bool]) -> float | None:
    found = list(met)
    return sum(found) / len(found) if found else None


def _by_tenant(records: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.demand.tenant, []).append(record)
    return found


def _ttft_p95_s(records: Sequence[Record]) -> float | None:
    found = [r.ttft_s for r in records if r.answered and r.ttft_s is not None]
    return percentile(found, 95) if found else None
