"""A picture of a scenario. Needs the extra `bench` (matplotlib)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot as plt

from bench.overload.client import Reply
from bench.overload.rounds import Course, Turn
from bench.overload.table import by_variant, label


def plot_course(course: Course, headlines: Sequence[str], path: Path) -> None:
    """Above: for each part, the share of all requests (failed ones included) whose first
    token came within a time. Below: a bar a variant for each headline."""
    parts = list(dict.fromkeys(turn.part for turn in course.turns))
    across = max(len(parts), len(headlines))
    figure, axes = plt.subplots(
        2, across, figsize=(4.5 * across, 7.5), squeeze=False, constrained_layout=True
    )
    for axis, part in zip(axes[0], parts, strict=False):
        _first_tokens(axis, [turn for turn in course.turns if turn.part == part], part)
    for axis, name in zip(axes[1], headlines, strict=False):
        _bars(axis, course.turns, name)
    for unused in (*axes[0][len(parts) :], *axes[1][len(headlines) :]):
        unused.set_axis_off()
    figure.suptitle(f"{course.title}\n{course.service}", fontsize="medium")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _first_tokens(axis: Any, turns: Sequence[Turn], part: str) -> None:
    for variant in dict.fromkeys(turn.variant for turn in turns):
        replies = [r for turn in turns if turn.variant == variant for r in turn.replies]
        for kind in dict.fromkeys(reply.kind for reply in replies):
            times, shares = _shares([reply for reply in replies if reply.kind == kind])
            axis.step(times, shares, where="post", label=f"{variant}: {kind}")
    axis.set(title=part, xlabel="time to first token, s", ylabel="share of requests")
    axis.set(xscale="log", ylim=(0, 1))
    axis.legend(fontsize="small")


def _shares(replies: Sequence[Reply]) -> tuple[list[float], list[float]]:
    found: Iterable[float | None] = (reply.answer.ttft_s for reply in replies)
    times = sorted(max(value, 1e-4) for value in found if value is not None)
    return times, [(rank + 1) / len(replies) for rank in range(len(times))]


def _bars(axis: Any, turns: Sequence[Turn], name: str) -> None:
    columns = by_variant(turns)
    heights = [median(turn.figures[name] for turn in found) for found in columns.values()]
    axis.bar(list(columns), heights)
    axis.set_title(label(name).replace(", ms", ", s"))
    axis.tick_params(axis="x", labelrotation=30)
