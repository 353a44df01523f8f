"""All pictures of a simulation. Needs the extra `bench` (matplotlib)."""

from collections.abc import Sequence
from pathlib import Path

from bench.simulation.bound import Bound
from bench.simulation.figures import SLO
from bench.simulation.gantt import Window, busiest, plot_gantt
from bench.simulation.output import file_name
from bench.simulation.plots import plot_goodput, plot_latencies, plot_run
from bench.simulation.profile import Profile
from bench.simulation.run import Run


def draw(
    runs: Sequence[Run],
    profile: Profile,
    slo: SLO,
    bound: Bound | None,
    window: Window | None,
    folder: Path,
) -> None:
    """Latencies and goodput of all runs together; each run over time, and the requests of a
    window (around the busiest moment when None) as bars."""
    plot_latencies(runs, slo, folder / "latencies.png")
    plot_goodput(runs, slo, bound, folder / "goodput.png")
    for run in runs:
        name = file_name(run.label)
        plot_run(run, profile, folder / f"{name}.png")
        plot_gantt(run, window or busiest(run), folder / f"{name}-gantt.png")
