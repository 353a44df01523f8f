"""Figures of a run, real or simulated. The end of a name is its unit, as in `overload`."""

from collections.abc import Sequence

from bench.replay.seen import Seen
from bench.replay.traffic import Class, Traffic, classes
from bench.samples import percentile
from bench.simulation.figures import SLO

NOTHING = float("nan")
THIRDS = 3


def figures(traffic: Traffic, slo: SLO, seen: Sequence[Seen]) -> dict[str, float]:
    """Of the whole run, then of each class. Latencies are of those answered in full. Service
    is of tokens computed while requests arrive, prompts included."""
    span_s = traffic.span_s
    found = {
        "answered_share": _share([one.answered for one in seen]),
        "in_slo_share": _share([_content(one, slo) for one in seen]),
        "ttft_p50_s": _percentile([one.ttft_s for one in seen if one.answered], 50),
        "total_mean_s": _mean([one.ended_s - one.at_s for one in seen if one.answered]),
        "answered_tokens_per_s": _speed([one for one in seen if one.answered]),
        "computed_tokens_per_s": sum(one.computed(0, span_s) for one in seen) / span_s,
    }
    for kind in classes(traffic):
        members = [one for one in seen if _belongs(one, kind)]
        found |= {f"{kind.name}_{name}": value for name, value in _of(members, seen, span_s)}
    return found


def _of(
    members: Sequence[Seen], seen: Sequence[Seen], span_s: float
) -> list[tuple[str, float]]:
    answered = [one.ttft_s for one in members if one.answered]
    last_from_s = span_s * (1 - 1 / THIRDS)
    return [
        ("answered_share", _share([one.answered for one in members])),
        ("ttft_p50_s", _percentile(answered, 50)),
        ("ttft_p95_s", _percentile(answered, 95)),
        ("service_share", _part(members, seen, 0, span_s)),
        ("service_last_third_share", _part(members, seen, last_from_s, span_s)),
    ]


def _belongs(one: Seen, kind: Class) -> bool:
    return (
        kind.priority in (None, one.priority)
        and kind.tenant in (None, one.tenant)
        and kind.hurried in (None, one.hurried)
    )


def _content(one: Seen, slo: SLO) -> bool:
    """Whether it was answered within the SLO."""
    if not one.answered or one.ttft_s is None or one.ttft_s > slo.ttft_s:
        return False
    return (one.tpot_s or 0.0) <= slo.tpot_s


def _part(
    members: Sequence[Seen], seen: Sequence[Seen], from_s: float, until_s: float
) -> float:
    whole = sum(one.computed(from_s, until_s) for one in seen)
    part = sum(one.computed(from_s, until_s) for one in members)
    return part / whole if whole else NOTHING


def _speed(answered: Sequence[Seen]) -> float:
    until_s = max((one.ended_s for one in answered), default=0.0)
    return sum(one.output_tokens for one in answered) / until_s if until_s else 0.0


def _share(which: Sequence[bool]) -> float:
    return sum(which) / len(which) if which else NOTHING


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else NOTHING


def _percentile(values: Sequence[float | None], percent: float) -> float:
    there = [value for value in values if value is not None]
    return percentile(there, percent) if there else NOTHING
