"""Pictures of runs. Needs the extra `bench` (matplotlib)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot as plt

from bench.recording import Recording
from bench.report import waste

WIDE = (9, 8)


def plot_recording(recording: Recording, path: Path) -> None:
    """Batch size and waste over time, tokens a second, and how latencies are spread."""
    figure, axes = plt.subplots(2, 2, figsize=WIDE, constrained_layout=True)
    _batch(axes[0][0], recording)
    _tokens(axes[0][1], recording)
    _waste(axes[1][0], recording)
    _latencies(axes[1][1], recording)
    figure.suptitle(f"{recording.load} on {recording.service}")
    _write(figure, path)


def plot_comparison(speeds: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Output tokens/s by workload and engine: a group of bars for each workload."""
    engines = list(dict.fromkeys(name for by_name in speeds.values() for name in by_name))
    figure, axis = plt.subplots(figsize=(9, 4.5), constrained_layout=True)
    width = 0.8 / len(engines)
    for index, engine in enumerate(engines):
        at = [group + (index - (len(engines) - 1) / 2) * width for group in range(len(speeds))]
        axis.bar(at, [by_name.get(engine, 0.0) for by_name in speeds.values()], width)
    axis.set_xticks(range(len(speeds)), list(speeds))
    axis.set_ylabel("output tokens/s")
    axis.legend(engines, fontsize="small")
    _write(figure, path)


def _batch(axis: Any, recording: Recording) -> None:
    times = [sample.at_s for sample in recording.samples]
    axis.step(times, [s.running for s in recording.samples], where="post", label="running")
    axis.step(times, [s.waiting for s in recording.samples], where="post", label="waiting")
    axis.set(title="requests", xlabel="s")
    axis.legend()


def _tokens(axis: Any, recording: Recording) -> None:
    arrivals = [arrival for answer in recording.answers for arrival in answer.arrivals]
    last_s = max((at_s for at_s, _ in arrivals), default=0.0)
    axis.hist(
        [at_s for at_s, _ in arrivals],
        bins=range(int(last_s) + 2),
        weights=[tokens for _, tokens in arrivals],
    )
    axis.set(title="output tokens each second", xlabel="s")


def _waste(axis: Any, recording: Recording) -> None:
    times = [sample.at_s for sample in recording.samples]
    axis.plot(times, [100 * waste(sample) for sample in recording.samples])
    axis.set(title="token slots of held pages without a token, %", xlabel="s")
    axis.set_ylim(bottom=0)


def _latencies(axis: Any, recording: Recording) -> None:
    answers = recording.answers
    series: dict[str, Sequence[float | None]] = {
        "time to first token": [answer.ttft_s for answer in answers],
        "gap between tokens": [gap for answer in answers for gap in answer.gaps_s],
        "time per output token": [answer.tpot_s for answer in answers],
    }
    for name, found in series.items():
        values = sorted(value for value in found if value is not None and value > 0)
        if values:
            axis.plot(values, [(i + 1) / len(values) for i in range(len(values))], label=name)
            axis.set_xscale("log")
    axis.set(title="share of requests (or gaps) below", xlabel="s", ylim=(0, 1))
    axis.legend(fontsize="small")


def _write(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
