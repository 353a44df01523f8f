"""What turns come to: medians, ratios, a table. A turn is the line an engine said
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
    """Medians as a table; the ratio is to the first engine's speed."""
    heading = ("workload", "engine", "tok/s", "min - max", "ratio", "TTFT p50 / p99 ms")
    rows = [(*heading, "gap p50 / p99 ms", "batch", "waste")]
    for workload, by_engine in medians(turns).items():
        first = next(iter(by_engine.values()))
        for engine, median in by_engine.items():
            own = [t for t in turns if (t["workload"], t["engine"]) == (workload, engine)]
            speeds = [speed(turn) for turn in own]
            rows.append(
                (
                    workload,
                    engine,
                    f"{median:.1f}",
                    f"{min(speeds):.1f} - {max(speeds):.1f}",
                    f"{median / first:.2f}",
                    _milliseconds(own, "ttft_s"),
                    _milliseconds(own, "gap_s"),
                    _median(own, "batch", "{:.1f}"),
                    _median(own, "waste", "{:.1%}"),
                )
            )
    return table(rows)


def _milliseconds(turns: Sequence[Turn], name: str) -> str:
    found = [turn[name] for turn in turns if turn[name]]
    if not found:
        return "-"
    middle = (1000 * statistics.median(one[p] for one in found) for p in ("p50", "p99"))
    return " / ".join(f"{value:.0f}" for value in middle)


def _median(turns: Sequence[Turn], name: str, form: str) -> str:
    found = [turn[name] for turn in turns if name in turn]
    return form.format(statistics.median(found)) if found else "-"
