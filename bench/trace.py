"""A recorded day of traffic, scaled to the machine at hand.

The format is that of the Azure LLM inference traces (TIMESTAMP, ContextTokens,
GeneratedTokens; no texts), which came with "Splitwise: Efficient Generative LLM Inference
Using Phase Splitting" (Patel et al., ISCA 2024). Prompts are made of random token ids.
"""

import csv
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from bench.workload import Job

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
SAMPLE = Path(__file__).parent / "traces" / "azure_conversation_sample.csv"


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace; `at_s` counts from the trace's first. `blocks` name what the
    prompt consists of, where the trace knows: equal names up to one are equal prefixes."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Scale:
    """How a trace is made to fit. Times are multiplied by `time` (0.5 is twice the rate)
    and token counts by `tokens`, never below one; a request of more than `context_tokens`
    is cut, its prompt first. Only the trace's first `seconds` (before scaling) count."""

    time: float = 1.0
    tokens: float = 1.0
    context_tokens: int = 8192
    seconds: float | None = None


def read_trace(path: Path) -> list[Arrival]:
    """Read a trace file; raises ValueError with file and line when it is not one."""
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        try:
            columns = tuple(rows.fieldnames or ())
            arrivals = in_order(_arrivals(path, rows)) if columns == COLUMNS else []
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{path}: {error}") from error
    if columns != COLUMNS:
        raise ValueError(f"{path}: the columns must be {', '.join(COLUMNS)}")
    return arrivals


def in_order(arrivals: Iterable[Arrival]) -> list[Arrival]:
    """By time, which starts at the earliest: not every recording is sorted."""
    found = sorted(arrivals, key=lambda arrival: arrival.at_s)
    return [replace(arrival, at_s=arrival.at_s - found[0].at_s) for arrival in found]


def _arrivals(path: Path, rows: "csv.DictReader[str]") -> Iterator[Arrival]:
    first: datetime | None = None
    for row in rows:
        try:
            # fromisoformat takes six digits of a second, the traces have seven
            at = datetime.fromisoformat(row["TIMESTAMP"][:26])
            prompt, output = int(row["ContextTokens"]), int(row["GeneratedTokens"])
            first = first or at
            at_s = (at - first).total_seconds()
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}:{rows.line_num}: {error}") from error
        yield Arrival(at_s, prompt, output)


def trace_jobs(trace: list[Arrival], scale: Scale, vocab_size: int, seed: int = 0) -> list[Job]:
    """The requests to send; the same seed gives the same prompts."""
    draw = random.Random(seed)
    jobs = []
    for arrival in scaled(trace, scale):
        ids = tuple(draw.randrange(vocab_size) for _ in range(arrival.prompt_tokens))
        jobs.append(Job(ids, arrival.output_tokens, arrival.at_s))
    return jobs


def scaled(trace: list[Arrival], scale: Scale) -> Iterator[Arrival]:
    """The requests as they are to come, without prompts."""
    for arrival in trace:
        if scale.seconds is not None and arrival.at_s >= scale.seconds:
            break
        output = _scaled(arrival.output_tokens, scale.tokens, scale.context_tokens - 1)
        prompt = _scaled(arrival.prompt_tokens, scale.tokens, scale.context_tokens - output)
        yield Arrival(arrival.at_s * scale.time, prompt, output, arrival.blocks)


def _scaled(tokens: int, factor: float, most: int) -> int:
    return max(1, min(round(tokens * factor), most))


def poisson(jobs: list[Job], rate_per_s: float, seed: int = 0) -> list[Job]:
    """The same requests, arriving at random with this mean rate."""
    draw = random.Random(seed)
    at_s = 0.0
    spread = []
    for job in jobs:
        at_s += draw.expovariate(rate_per_s)
        spread.append(Job(job.prompt, job.max_tokens, at_s))
    return spread
