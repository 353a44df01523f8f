"""Measures step costs of the model at hand and writes them as a profile."""

import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.simulation.fit import fit, relative_errors
from bench.simulation.probes import Room, Timing, measure
from bench.simulation.profile import Profile, save
from models.errors import ModelError
from schedulers.registry import UnknownScheduler
from service.build import build
from service.config import ConfigError, load_settings
from service.engine_process import Built, spin_briefly
from service.settings import Settings
from service.strategy import BadOptions


def run_calibration(
    out: Path, config: Path | None, assignments: Sequence[str], repeats: int, as_json: bool
) -> int:
    """Exit code: 0 done, 2 a mistake in the call or a model that does not load."""
    spin_briefly()
    try:
        settings = load_settings(config, assignments)
        built = build(settings)
    except (ConfigError, ModelError, UnknownScheduler, BadOptions, MemoryError) as error:
        print(f"walkway: {error}", file=sys.stderr)
        return 2
    try:
        timings = _measure(built, room_of(built), repeats)
        profile = _profile(out.stem, built, settings, timings)
        save(profile, out)
    except OSError as error:
        print(f"walkway: {out}: {error.strerror}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"walkway: {error}", file=sys.stderr)
        return 2
    if as_json:
        print(out.read_text(), end="")
    else:
        _show(profile, timings, out)
    return 0


def room_of(built: Built) -> Room:
    """What the engine has room for."""
    return Room(
        max_tokens=built.ready.max_step_tokens,
        max_rows=built.ready.max_rows,
        pages=built.ready.num_pages - 1,
        host_pages=built.core.residency.host.num_pages,
        page_size=built.ready.page_size,
        context_tokens=built.ready.context_tokens,
        vocab_size=built.ready.vocab_size,
    )


def _measure(built: Built, room: Room, repeats: int) -> list[Timing]:
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("steps", total=None)
        return measure(
            built.runner,
            room,
            repeats,
            lambda done, total: bar.update(task, completed=done, total=total),
        )


def _profile(name: str, built: Built, settings: Settings, timings: Sequence[Timing]) -> Profile:
    costs, ready, gap_ms = fit(timings), built.ready, settings.engine.target_gap_ms
    error = statistics.median(map(abs, relative_errors(costs, timings)))
    return Profile(
        name=name,
        source="measured",
        note=f"{ready.model} {ready.dtype}, attention {ready.attention}, {os.cpu_count()} "
        f"cores, load {os.getloadavg()[0]:.1f}, median error of a step {error:.0%}",
        costs=costs,
        device_pages=ready.num_pages - 1,
        host_pages=built.core.residency.host.num_pages,
        page_size=ready.page_size,
        max_rows=ready.max_rows,
        max_step_tokens=ready.max_step_tokens,
        context_tokens=ready.context_tokens,
        watermark_pages=settings.memory.watermark_pages,
        target_gap_s=None if gap_ms is None else gap_ms / 1000,
    )


def _show(profile: Profile, timings: Sequence[Timing], out: Path) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("rows", "context", "prefill", "pairs", "pages", "ms", "fitted ms", "error"):
        table.add_column(column, justify="right")
    for timing, error in zip(timings, relative_errors(profile.costs, timings), strict=True):
        work, ms = timing.work, 1000 * timing.seconds
        counts = (work.rows, work.context_tokens, work.prefill_tokens, work.pairs, work.pages)
        table.add_row(
            *map(str, counts), f"{ms:.2f}", f"{ms * (1 + error):.2f}", f"{error:+.0%}"
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(f"\n{profile.costs}\n{profile.note}\nwritten to {out}")
