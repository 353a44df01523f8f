"""Simulated runs as tables for a terminal of 80 columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from bench.samples import Spread
from bench.simulation.bound import Bound
from bench.simulation.figures import SLO, Class, Figures

WHOLE = {"length", "stop"}  # of the ways to end, those of a whole answer


def tables(runs: Sequence[Figures], slo: SLO, bound: Bound | None = None) -> Iterator[Table]:
    """Runs, preemptions, classes of requests, and what none can exceed."""
    yield _runs(runs)
    preempted = _preemptions(runs)
    if preempted is not None:
        yield preempted
    yield _first_and_next_tokens(runs, slo)
    streams = _streams(runs)
    if streams is not None:
        yield streams
    yield _whole_answers(runs)
    if bound is not None:
        yield _bound(runs, bound)


def _bound(runs: Sequence[Figures], bound: Bound) -> Table:
    """Each run beside what no schedule can exceed, all requests; mean time to the end is at
    least so long."""
    table = _table("all requests", "deadlines", "in SLO", "out tok/s", "mean total s")
    for run in runs:
        of = run.classes[0]
        table.add_row(
            Text(run.scheduler),
            _percent(of.deadlines_met),
            _percent(of.good),
            f"{run.output_tokens_per_s:.1f}",
            "-" if of.mean_total_s is None else _short(of.mean_total_s),
        )
    table.add_row(
        Text("bound", "bold"),
        _percent(bound.deadlines_met),
        _percent(bound.in_slo),
        "-" if bound.output_tokens_per_s is None else f"{bound.output_tokens_per_s:.1f}",
        "-" if bound.mean_total_s is None else _short(bound.mean_total_s),
    )
    return table


def _runs(runs: Sequence[Figures]) -> Table:
    """A line for each run."""
    table = _table(
        "scheduler", "out tok/s", "good req/s", "batch", "KV peak", "waste, peak", "cached"
    )
    for run in runs:
        table.add_row(
            Text(run.scheduler),
            f"{run.output_tokens_per_s:.1f}",
            f"{run.goodput_per_s:.2f}",
            f"{run.batch:.1f}",
            f"{run.kv_peak:.0%}",
            f"{run.waste:.1%}, {run.waste_peak:.1%}",
            f"{run.cached:.1%}",
        )
    return table


def _preemptions(runs: Sequence[Figures]) -> Table | None:
    """How often requests were preempted, by mode and cause, and what it cost; None when none
    was."""
    if not any(run.preemptions for run in runs):
        return None
    table = _table("scheduler", "preempted", "mode, cause", "recomputed tok", "swapped tok")
    for run in runs:
        kinds = [f"{count} {kind}" for kind, count in sorted(run.evictions.items())]
        table.add_row(
            Text(run.scheduler),
            f"{run.preemptions}",
            "\n".join(kinds) or "-",
            f"{run.recomputed_tokens}",
            f"{run.swapped_tokens}",
        )
    return table


def _first_and_next_tokens(runs: Sequence[Figures], slo: SLO) -> Table:
    """A line for each class of each run, and how many met the SLO."""
    table = _table("p50 / p95 / p99", "TTFT s", "TPOT ms", "in SLO", "deadlines")
    table.caption = slo_line(slo)
    table.caption_justify = "left"
    for one in _by_class(table, runs):
        table.add_row(
            one.label,
            _percentiles(one.of.ttft_s),
            _percentiles(one.of.tpot_s, 1000),
            f"{one.of.good:.1%}",
            _percent(one.of.deadlines_met),
        )
    return table


def _streams(runs: Sequence[Figures]) -> Table | None:
    """A line for each class of each run: how many wishes for streams were met; None where no
    request has one."""
    wishes = [(c.first_tokens_met, c.paces_met) for run in runs for c in run.classes]
    if all(met is None for both in wishes for met in both):
        return None
    table = _table("met", "first-token deadlines", "paces")
    for one in _by_class(table, runs):
        table.add_row(one.label, _percent(one.of.first_tokens_met), _percent(one.of.paces_met))
    return table


def _whole_answers(runs: Sequence[Figures]) -> Table:
    """A line for each class of each run."""
    table = _table("p50 / p95 / p99", "longest gap s", "total s", "requests")
    for one in _by_class(table, runs):
        failures = "".join(f", {n} {how}" for how, n in _failures(one.of))
        table.add_row(
            one.label,
            _percentiles(one.of.stall_s),
            _percentiles(one.of.latency_s),
            f"{one.of.requests}{failures}",
        )
    return table


def slo_line(slo: SLO) -> str:
    """The SLO in words."""
    return f"SLO: first token within {slo.ttft_s:g} s, then {1000 * slo.tpot_s:g} ms a token"


@dataclass(frozen=True, slots=True)
class _Line:
    """A class of a run, and how its line begins."""

    label: Text
    of: Class


def _by_class(table: Table, runs: Sequence[Figures]) -> Iterator[_Line]:
    """Under a heading each, where there are several."""
    names = dict.fromkeys(one.name for run in runs for one in run.classes)
    indent = "  " if len(names) > 1 else ""
    for name in names:
        if len(names) > 1:
            table.add_row(Text(name, "bold"))
        for run in runs:
            for one in run.classes:
                if one.name == name:
                    yield _Line(Text(f"{indent}{run.scheduler}"), one)


def _failures(one: Class) -> list[tuple[str, int]]:
    return [(how, count) for how, count in one.ended.items() if how not in WHOLE]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _percentiles(found: Spread | None, scale: float = 1) -> str:
    if found is None:
        return "-"
    return " / ".join(_short(scale * value) for value in (found.p50, found.p95, found.p99))


def _short(value: float) -> str:
    """Three digits, and no exponent for what a person counts in."""
    for least, digits in ((100, 0), (10, 1), (1, 2)):
        if value >= least:
            return f"{value:.{digits}f}"
    return f"{value:.3f}"


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    return table
