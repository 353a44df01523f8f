"""Who did what when: requests of a window as bars. Needs the extra `bench` (matplotlib)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from bench.samples import percentile
from bench.simulation.record import Record
from bench.simulation.run import Run

MOST_ROWS = 60
LIVES = 3
COLOURS = {
    "waiting": "lightgrey",
    "prefill": "tab:orange",
    "decode": "tab:blue",
    "recompute": "tab:red",
    "swap": "tab:purple",
}

Bar = tuple[str, float, float]
Window = tuple[float, float]


def busiest(run: Run) -> Window:
    """A window around the moment when most requests waited (were running, if none did), of
    some times what a request takes once it is admitted."""
    peak = max(run.gauges, key=lambda g: (g.waiting + g.swapped, g.running), default=None)
    seconds = LIVES * percentile([r.ended_s - _started_s(r) for r in run.records], 50)
    begin_s = max(0.0, (peak.at_s if peak else 0.0) - seconds / 2)
    return begin_s, begin_s + seconds


def plot_gantt(run: Run, window: Window, path: Path) -> None:
    """The first `MOST_ROWS` requests that did more than wait in the window, oldest on top."""
    begin_s, end_s = window
    lived = [r for r in run.records if _started_s(r) < end_s and r.ended_s > begin_s]
    lived = lived[:MOST_ROWS]
    figure, axis = plt.subplots(
        figsize=(11, 2 + 0.16 * max(len(lived), 10)), constrained_layout=True
    )
    for place, record in enumerate(lived):
        spans = list(bars(record))
        axis.broken_barh(
            [(from_s, to_s - from_s) for _, from_s, to_s in spans],
            (place - 0.4, 0.8),
            facecolors=[COLOURS[what] for what, _, _ in spans],
        )
    axis.set_yticks(range(len(lived)), _names(lived), fontsize=6)
    axis.set(title=run.label, xlabel="s", xlim=window, ylim=(max(len(lived), 1) - 0.4, -0.6))
    axis.legend(
        handles=[Patch(color=colour, label=what) for what, colour in COLOURS.items()],
        loc="upper left",
        bbox_to_anchor=(1, 1),
        fontsize="small",
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def bars(record: Record) -> Iterator[Bar]:
    """A request's life as (what, from, to), later ones over earlier ones. Times in which it
    had given way are named by how."""
    started_s = _started_s(record)
    first_s = record.ended_s if record.first_s is None else record.first_s
    yield "waiting", record.at_s, started_s
    yield "prefill", started_s, first_s
    yield "decode", first_s, record.ended_s
    for pause in record.pauses:
        yield pause.mode, pause.from_s, record.ended_s if pause.to_s is None else pause.to_s


def _started_s(record: Record) -> float:
    return record.at_s + (record.queue_s or 0.0)


def _names(records: Sequence[Record]) -> list[str]:
    return [
        f"{record.id} {record.demand.tenant} p{record.demand.priority}" for record in records
    ]
