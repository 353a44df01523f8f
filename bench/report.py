"""Recordings as a table: `python -m bench.report bench/out/*.json`."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.recording import Recording, Sample, read
from bench.samples import Spread, Summary, summarise


@dataclass(frozen=True, slots=True)
class Report:
    """What a recording comes to. `waste` is the share of held token slots without a token,
    `batch` the mean number of running requests, both over scrapes with work; None when
    nothing was scraped."""

    load: str
    service: str
    summary: Summary
    waste: float | None
    batch: float | None


def report(recording: Recording) -> Report:
    """The figures of a recording."""
    busy = [sample for sample in recording.samples if sample.running and sample.held_slots]
    return Report(
        load=recording.load,
        service=recording.service,
        summary=summarise(recording.answers),
        waste=sum(map(waste, busy)) / len(busy) if busy else None,
        batch=sum(sample.running for sample in busy) / len(busy) if busy else None,
    )


def waste(sample: Sample) -> float:
    """The share of held token slots that hold no token."""
    return 1 - sample.used_slots / sample.held_slots if sample.held_slots else 0.0


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows, the heading first, as Markdown."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    lines.insert(1, "|-" + "-|-".join("-" * width for width in widths))
    return "\n".join(line + ("-|" if index == 1 else " |") for index, line in enumerate(lines))


def latency_table(reports: Sequence[Report]) -> str:
    """A line for each recording."""
    heading = ("load", "service", "out tok/s", "TTFT p50 / p95 / p99 ms", "TPOT ms")
    rows = [(*heading, "gap ms", "batch", "waste", "failed")]
    for one in reports:
        summary = one.summary
        rows.append(
            (
                one.load,
                one.service,
                f"{summary.output_tokens_per_s:.1f}",
                milliseconds(summary.ttft_s),
                milliseconds(summary.tpot_s),
                milliseconds(summary.gap_s),
                "-" if one.batch is None else f"{one.batch:.1f}",
                "-" if one.waste is None else f"{one.waste:.1%}",
                f"{summary.failed}/{sum(summary.statuses.values())}",
            )
        )
    return table(rows)


def milliseconds(spread: Spread | None) -> str:
    """p50 / p95 / p99, or a dash."""
    if spread is None:
        return "-"
    return " / ".join(f"{1000 * value:.1f}" for value in (spread.p50, spread.p95, spread.p99))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording", nargs="+", type=Path)
    options = parser.parse_args()
    print(latency_table([report(read(path)) for path in options.recording]))


if __name__ == "__main__":
    main()
