"""Writes what a simulation came to into a folder."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.simulation.bound import Bound
from bench.simulation.figures import SLO, Figures
from bench.simulation.profile import Profile
from bench.simulation.record import Record
from bench.simulation.run import Run

COLUMNS = (
    "id",
    "tenant",
    "priority",
    "prompt_tokens",
    "output_tokens",
    "deadline_s",
    "first_token_deadline_s",
    "tokens_per_second",
    "arrived_s",
    "queue_s",
    "ttft_s",
    "tpot_s",
    "longest_gap_s",
    "ended_s",
    "ended",
    "cached_tokens",
    "preemptions",
    "recomputed_tokens",
    "swapped_pages",
    "paused_s",
    "share_tokens",
)


class Simulated(msgspec.Struct, frozen=True):
    """Everything of a simulation but single requests: what `simulation.json` holds.
    `bound` where it was asked for."""

    load: str
    profile: Profile
    slo: SLO
    runs: list[Figures]
    bound: Bound | None = None


def save(simulated: Simulated, path: Path) -> None:
    """Write as JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(simulated), indent=1) + b"\n")


def read(path: Path) -> Simulated:
    """Raises msgspec.DecodeError for a file that is none."""
    return msgspec.json.decode(path.read_bytes(), type=Simulated)


def file_name(label: str) -> str:
    """A strategy's label as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.=_-]+", "-", label)


def save_requests(run: Run, path: Path) -> None:
    """A line for each request, as CSV; times in seconds, empty where there is none."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        rows.writerows(_row(record) for record in run.records)


def _row(record: Record) -> Sequence[object]:
    demand, receipt = record.demand, record.receipt
    assert receipt is not None and record.finish is not None, "a run ends with its last request"
    return (
        record.id,
        demand.tenant,
        demand.priority,
        demand.arrival.prompt_tokens,
        record.tokens,
        demand.deadline_s,
        demand.first_token_deadline_s,
        demand.tokens_per_second,
        record.at_s,
        record.queue_s,
        record.ttft_s,
        record.tpot_s,
        record.stall_s,
        record.ended_s,
        record.finish.value,
        receipt.cached_tokens,
        receipt.preemptions,
        receipt.recomputed_tokens,
        receipt.swapped_pages,
        receipt.paused_s,
        receipt.share_tokens,
    )
