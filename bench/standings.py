"""What turns come to: medians, ratios, tables. A turn is the line an engine said
(`bench.turns`)."""

import statistics
from collections.abc import Sequence
from typing import Any

from bench.report import table

Turn = dict[str, Any]


def speed(turn: Turn) -> float:
    """Output tokens/s; for `single` after the first token, which is what decoding takes."""
    tpot = turn["tpot_s"]
    if turn["workload"] == "single" and tpot:
        return 1 / float(tpot["p50"])
    return float(turn["output_tokens_per_s"])


def medians(turns: Sequence[Turn]) -> dict[str, dict[str, float]]:
    """Speed by workload and engine."""
    found: dict[str, dict[str, list[float]]] = {}
    for turn in turns:
        by_engine = found.setdefault(turn["workload"], {})
        by_engine.setdefault(turn["engine"], []).append(speed(turn))
    return {
        workload: {engine: statistics.median(values) for engine, values in by_engine.items()}
        for workload, by_engine in found.items()
    }


def comparison(turns: Sequence[Turn]) -> str:
    """Medians as two tables: speeds, with the ratio to the first engine's, and latencies."""
    return f"{_speeds(turns)}\n\n{_latencies(turns)}"


def _speeds(turns: Sequence[Turn]) -> str:
    rows = [("workload", "engine", "tok/s", "min - max", "ratio", "batch", "waste")]
    for workload, by_engine in medians(turns).items():
        first = next(iter(by_engine.values()))
        for engine, median in by_engine.items():
            own = _of(turns, workload, engine)
            speeds = [speed(turn) for turn in own]
            rows.append(
                (
                    workload,
                    engine,
                    f"{median:.1f}",
                    f"{min(speeds):.1f} - {max(speeds):.1f}",
                    f"{median / first:.2f}",
                    _median(own, "batch", "{:.1f}"),
                    _median(own, "waste", "{:.1%}"),
                )
            )
    return table(rows)


def _latencies(turns: Sequence[Turn]) -> str:
    heading = ["workload", "engine", "TTFT p50 / p95 / p99 ms", "TPOT ms", "gap ms"]
    rows = [[*heading, "whole answer ms"]]
    names = ("ttft_s", "tpot_s", "gap_s", "total_s")
    for workload, by_engine in medians(turns).items():
        for engine in by_engine:
            own = _of(turns, workload, engine)
            rows.append([workload, engine, *(_milliseconds(own, name) for name in names)])
    return table(rows)


def _of(turns: Sequence[Turn], workload: str, engine: str) -> list[Turn]:
    return [turn for turn in turns if (turn["workload"], turn["engine"]) == (workload, engine)]


def _milliseconds(turns: Sequence[Turn], name: str) -> str:
    found = [turn[name] for turn in turns if turn[name]]
    if not found:
        return "-"
    middle = (statistics.median(one[p] for one in found) for p in ("p50", "p95", "p99"))
    return " / ".join(f"{1000 * value:.0f}" for value in middle)


def _median(turns: Sequence[Turn], name: str, form: str) -> str:
    found = [turn[name] for turn in turns if name in turn]
    return form.format(statistics.median(found)) if found else "-"
