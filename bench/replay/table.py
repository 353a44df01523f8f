"""A table of measured and simulated figures."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table

from bench.overload.table import label, shown
from bench.replay.asking import Answered
from bench.replay.keeping import Begun
from bench.replay.order import order
from bench.simulation.figures import SLO

Figures = Mapping[str, float]


def table(real: Mapping[str, Figures], simulated: Mapping[str, Figures]) -> Table:
    """A line for each figure; a column for each strategy, with what was measured and what was
    simulated; and whether both put the strategies in the same order."""
    found = Table("real / simulated", box=box.MARKDOWN)
    for name in real:
        found.add_column(name, justify="right")
    found.add_column("same order")
    for figure in next(iter(real.values())):
        measured = [real[name][figure] for name in real]
        expected = [simulated[name][figure] for name in real]
        pairs = zip(measured, expected, strict=True)
        cells = [f"{shown(figure, one)} / {shown(figure, two)}" for one, two in pairs]
        found.add_row(label(figure), *cells, str(order(figure, measured, expected)))
    return found


def heading(begun: Begun, slo: SLO, runs: Sequence[Answered]) -> str:
    """What was asked for, of what machine, and what spoils the comparison."""
    traffic, profile = begun.traffic, begun.profile
    lines = [
        f"{traffic.trace} in {traffic.minutes:g} minutes, tokens times {traffic.tokens:g}: "
        f"{begun.requests_per_s:.2f} requests/s, {traffic.times:g} times the capacity of "
        f"{begun.capacity_per_s:.2f}",
        f"deadlines {traffic.slack:g} times alone for {100 * traffic.hurried:g} %, patience of "
        f"the others {traffic.patience_s:g} s, seed {traffic.seed}",
        f"SLO {slo.ttft_s:g} s to the first token, {1000 * slo.tpot_s:.0f} ms a token after it",
        profile.note,
        f"settings: {', '.join(begun.settings)}",
        "times what the profile says, before and after: "
        + ", ".join(f"{r.label} {r.drags[0]:.2f} {r.drags[1]:.2f}" for r in runs),
        *(
            f"{r.label}: another strategy planned {r.plan_faults:.0f} steps"
            for r in runs
            if r.plan_faults
        ),
    ]
    return "\n".join(lines)
