"""Pictures of simulated runs. Needs the extra `bench` (matplotlib)."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot as plt

from bench.simulation.figures import SLO, grouped
from bench.simulation.profile import Profile
from bench.simulation.record import Record
from bench.simulation.run import Run

BINS = 120


def plot_latencies(runs: Sequence[Run], slo: SLO, path: Path) -> None:
    """How times to first token and per token are spread, a line a run and class, and the
    SLO."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), constrained_layout=True)
    for run in runs:
        for name, records in _classes(run.records).items():
            label = f"{run.label} {name}".strip()
            answered = [record for record in records if record.answered]
            _spread(axes[0], label, [record.ttft_s for record in answered])
            _spread(axes[1], label, [record.tpot_s for record in answered])
    for axis, title, limit_s in (
        (axes[0], "time to first token, s", slo.ttft_s),
        (axes[1], "time per output token, s", slo.tpot_s),
    ):
        axis.axvline(limit_s, color="grey", linestyle=":")
        axis.set(title=title, xscale="log", ylabel="share of answered requests", ylim=(0, 1))
        axis.legend(fontsize="small")
    _write(figure, path)


def plot_goodput(runs: Sequence[Run], slo: SLO, path: Path) -> None:
    """The share of each class within the SLO: a group of bars a class."""
    figure, axis = plt.subplots(figsize=(9, 4.5), constrained_layout=True)
    names = list(dict.fromkeys(name for run in runs for name in _classes(run.records)))
    width = 0.8 / len(runs)
    for index, run in enumerate(runs):
        groups = _classes(run.records)
        shares = [
            100 * sum(map(slo.met, groups[name])) / len(groups[name]) if name in groups else 0
            for name in names
        ]
        at = [group + (index - (len(runs) - 1) / 2) * width for group in range(len(names))]
        axis.bar(at, shares, width, label=run.label)
    axis.set_xticks(range(len(names)), [name or "all" for name in names])
    axis.set_ylabel(f"% with TTFT <= {slo.ttft_s} s and TPOT <= {slo.tpot_s} s")
    axis.legend(fontsize="small")
    _write(figure, path)


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
    axes[0][0].legend()
    axes[0][1].legend()
    figure.suptitle(f"{run.label} on {profile.name} ({profile.source})")
    _write(figure, path)


def _tenants(axis: Any, run: Run) -> None:
    """Tokens so far by tenant: a prompt counts when its first token came, output evenly from
    then to its last. Parallel lines are tenants that get alike."""
    width_s = max(run.ended_s / BINS, 1e-9)
    edges = [index * width_s for index in range(BINS + 1)]
    by_tenant = grouped(run.records, lambda r: r.demand.tenant) or {"all": run.records}
    for tenant, records in by_tenant.items():
        axis.plot(edges, [0.0, *accumulate(_served(records, width_s))], label=tenant)
    axis.set(title="tokens served so far, by tenant", xlabel="s")
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


def _classes(records: Sequence[Record]) -> dict[str, list[Record]]:
    by_priority = grouped(records, lambda r: f"priority {r.demand.priority:2}")
    by_tenant = grouped(records, lambda r: f"tenant {r.demand.tenant}")
    return by_priority | by_tenant or {"": list(records)}


def _spread(axis: Any, label: str, found: Sequence[float | None]) -> None:
    values = sorted(value for value in found if value)
    if values:
        shares = [(index + 1) / len(values) for index in range(len(values))]
        axis.plot(values, shares, label=label)


def _write(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110)
    plt.close(figure)
