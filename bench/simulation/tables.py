"""Simulated runs as tables for a terminal."""

from collections.abc import Sequence

from rich.table import Table

from bench.samples import Spread
from bench.simulation.figures import Class, Figures


def runs_table(runs: Sequence[Figures]) -> Table:
    """A line for each run."""
    table = _table(
        "scheduler",
        "out tok/s",
        "good req/s",
        "batch",
        "KV peak",
        "waste mean / peak",
        "preempted",
        "recomputed tok",
        "swapped tok",
        "cached",
    )
    for run in runs:
        table.add_row(
            run.scheduler,
            f"{run.output_tokens_per_s:.1f}",
            f"{run.goodput_per_s:.2f}",
            f"{run.batch:.1f}",
            f"{run.kv_peak:.0%}",
            f"{run.waste:.1%} / {run.waste_peak:.1%}",
            f"{run.preemptions}",
            f"{run.recomputed_tokens}",
            f"{run.swapped_tokens}",
            f"{run.cached:.1%}",
        )
    return table


def classes_table(runs: Sequence[Figures]) -> Table:
    """A line for each class of each run; percentiles 50 / 95 / 99."""
    table = _table(
        "class",
        "scheduler",
        "requests",
        "TTFT s",
        "TPOT ms",
        "longest gap s",
        "total s",
        "in SLO",
        "deadlines",
    )
    names = dict.fromkeys(one.name for run in runs for one in run.classes)
    for name in names:
        for run in runs:
            for one in run.classes:
                if one.name == name:
                    table.add_row(name, run.scheduler, *_latencies(one))
    return table


def evictions_table(runs: Sequence[Figures]) -> Table | None:
    """How often requests gave way, by mode and cause; None when none did."""
    kinds = sorted({kind for run in runs for kind in run.evictions})
    if not kinds:
        return None
    table = _table("scheduler", *(f"{kind} evictions" for kind in kinds))
    for run in runs:
        table.add_row(run.scheduler, *(str(run.evictions.get(kind, 0)) for kind in kinds))
    return table


def _latencies(one: Class) -> list[str]:
    return [
        f"{one.requests}" + "".join(f", {n} {how}" for how, n in _failures(one)),
        _percentiles(one.ttft_s),
        _percentiles(one.tpot_s, 1000),
        _percentiles(one.stall_s),
        _percentiles(one.latency_s),
        f"{one.good:.1%}",
        "-" if one.deadlines_met is None else f"{one.deadlines_met:.1%}",
    ]


def _failures(one: Class) -> list[tuple[str, int]]:
    return [(how, count) for how, count in one.ended.items() if how != "length"]


def _percentiles(found: Spread | None, scale: float = 1) -> str:
    if found is None:
        return "-"
    return " / ".join(f"{scale * value:.3g}" for value in (found.p50, found.p95, found.p99))


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    return table
