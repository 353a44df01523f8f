"""Pictures of simulated runs. Needs the extra `bench` (matplotlib)."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bench.simulation.bound import Bound
from bench.simulation.figures import SLO, grouped
from bench.simulation.profile import Profile
from bench.simulation.record import Record
from bench.simulation.run import Run

BINS = 120
STYLES = ("-", "--", ":", "-.")


def plot_latencies(runs: Sequence[Run], slo: SLO, path: Path) -> None:
    """How times to first token and per token are spread: a colour a class (a run, where there
    is one class), a style a run, and the SLO."""
    figure, axes = plt.subplots(1, 2, figsize=(12, 4.8), constrained_layout=True)
    names = _class_names(runs)
    for number, run in enumerate(runs):
        for name, records in _classes(run.records).items():
            colour = f"C{number if len(names) == 1 else names.index(name)}"
            style = STYLES[number % len(STYLES)]
            answered = [record for record in records if record.answered]
            _spread(axes[0], [record.ttft_s for record in answered], colour, style)
            _spread(axes[1], [record.tpot_s for record in answered], colour, style)
    for axis, title, limit_s in (
        (axes[0], "time to first token, s", slo.ttft_s),
        (axes[1], "time per output token, s", slo.tpot_s),
    ):
        axis.axvline(limit_s, color="grey", linewidth=1)
        axis.set(title=title, xscale="log", ylabel="% of answered requests", ylim=(0, 100))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    figure.legend(handles=_key(runs, names), loc="outside right upper", fontsize="small")
    _write(figure, path)


def _key(runs: Sequence[Run], names: Sequence[str]) -> list[Line2D]:
    """Runs and classes apart, so that no word is said once for each pair."""
    several = len(names) > 1
    lines = [
        Line2D([], [], color="black" if several else f"C{n}", linestyle=s, label=run.label)
        for n, (run, s) in enumerate(zip(runs, STYLES * len(runs), strict=False))
    ]
    if several:
        lines += [Line2D([], [], color=f"C{n}", label=name) for n, name in enumerate(names)]
    return [*lines, Line2D([], [], color="grey", linewidth=1, label="SLO")]


def plot_goodput(runs: Sequence[Run], slo: SLO, bound: Bound | None, path: Path) -> None:
    """The share of each class within the SLO, and by its deadline where there are some: a group
    of bars a class, and a line that all requests together cannot exceed."""
    asked = f"first token within {slo.ttft_s:g} s, then {1000 * slo.tpot_s:g} ms a token"
    timed = any(r.demand.deadline_s is not None for run in runs for r in run.records)
    figure, axes = plt.subplots(
        1 + timed, figsize=(9, 4.5 * (1 + timed)), squeeze=False, constrained_layout=True
    )
    limits = (None, None) if bound is None else (bound.in_slo, bound.deadlines_met)
    _shares(axes[0][0], runs, _in_slo(slo), limits[0])
    axes[0][0].set(ylabel="% of requests within the SLO")
    # Above 100 % there is room for no more than the bars' labels.
    axes[0][0].set_title(asked, pad=16)
    if timed:
        _shares(axes[1][0], runs, _by_deadline, limits[1])
        axes[1][0].set(ylabel="% of deadlines met")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize="small")
    _write(figure, path)


def _in_slo(slo: SLO) -> Callable[[Sequence[Record]], float]:
    return lambda records: sum(map(slo.met, records)) / len(records)


def _by_deadline(records: Sequence[Record]) -> float | None:
    timed = [record for record in records if record.demand.deadline_s is not None]
    return sum(record.answered for record in timed) / len(timed) if timed else None


def _shares(
    axis: Any,
    runs: Sequence[Run],
    share: Callable[[Sequence[Record]], float | None],
    limit: float | None,
) -> None:
    names, width = _class_names(runs), 0.8 / len(runs)
    for index, run in enumerate(runs):
        groups = _classes(run.records)
        found = [share(groups[name]) if name in groups else None for name in names]
        shares = {group: 100 * part for group, part in enumerate(found) if part is not None}
        at = [group + (index - (len(runs) - 1) / 2) * width for group in shares]
        bars = axis.bar(at, list(shares.values()), width, label=run.label)
        axis.bar_label(bars, fmt="%.0f", fontsize="small", padding=1)
    if limit is not None:
        axis.axhline(100 * limit, color="black", linewidth=1, label="bound, all requests")
    axis.set_xticks(range(len(names)), [name or "all requests" for name in names])
    axis.set_xlim(-0.6, len(names) - 0.4)
    axis.set(ylim=(0, 100))


def plot_run(run: Run, profile: Profile, path: Path) -> None:
    """Requests by state, use of pages, preemptions, and what each tenant got, over time."""
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), constrained_layout=True, sharex=True)
    times = [gauge.at_s for gauge in run.gauges]
    for state in ("running", "waiting", "swapped"):
        axes[0][0].plot(times, [getattr(g, state) for g in run.gauges], label=state)
    axes[0][0].set(title="requests")
    slots = profile.device_pages * profile.page_size
    held = [100 * g.held_pages / profile.device_pages for g in run.gauges]
    axes[0][1].plot(times, held, label="held")
    axes[0][1].plot(
        times, [100 * g.used_slots / slots for g in run.gauges], label="with a token"
    )
    axes[0][1].set(title="KV slots, % of the pool", ylim=(0, 100))
    axes[1][0].plot(times, [g.preemptions for g in run.gauges])
    axes[1][0].set(title="preemptions so far", xlabel="s")
    _tenants(axes[1][1], run)
    for axis in (axes[0][0], axes[1][0], axes[1][1]):
        axis.set_ylim(0, max(1.0, axis.get_ylim()[1]))
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0][0].legend()
    axes[0][1].legend()
    figure.suptitle(f"{run.label} on {profile.name} ({profile.source})")
    _write(figure, path)


def _tenants(axis: Any, run: Run) -> None:
    """Tokens so far by tenant: a prompt counts when its first token came, output evenly from
    then to its last. Parallel lines are tenants that get alike."""
    width_s = max(run.ended_s / BINS, 1e-9)
    edges = [index * width_s for index in range(BINS + 1)]
    by_tenant = grouped(run.records, lambda r: r.demand.tenant)
    for tenant, records in (by_tenant or {"": run.records}).items():
        axis.plot(edges, [0.0, *accumulate(_served(records, width_s))], label=tenant)
    axis.set(title="tokens served so far" + ", by tenant" * bool(by_tenant), xlabel="s")
    if by_tenant:
        axis.legend()


def _served(records: Sequence[Record], width_s: float) -> list[float]:
    tokens = [0.0] * BINS
    for record in records:
        if record.first_s is None:
            continue
        first = min(int(record.first_s / width_s), BINS - 1)
        last = min(int(record.last_s / width_s), BINS - 1)
        tokens[first] += record.demand.arrival.prompt_tokens
        for index in range(first, last + 1):
            tokens[index] += record.tokens / (last - first + 1)
    return tokens


def _class_names(runs: Sequence[Run]) -> list[str]:
    """Of all runs; one empty name where requests are of one class."""
    return list(dict.fromkeys(name for run in runs for name in _classes(run.records)))


def _classes(records: Sequence[Record]) -> dict[str, list[Record]]:
    by_priority = grouped(records, lambda r: f"priority {r.demand.priority}")
    by_tenant = grouped(records, lambda r: f"tenant {r.demand.tenant}")
    return by_priority | by_tenant or {"": list(records)}


def _spread(axis: Any, found: Sequence[float | None], colour: str, style: str) -> None:
    values = sorted(value for value in found if value)
    if values:
        shares = [100 * (index + 1) / len(values) for index in range(len(values))]
        axis.step(values, shares, where="post", color=colour, linestyle=style)


def _write(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110)
    plt.close(figure)
