"""Workloads: lists of requests with prompts as token ids, greedy, answers of a fixed length.

Standard library only, so that a peer's interpreter can read them too.
"""

import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "workloads"
NAMES = ("fixed", "mixed", "single")
MAX_RUNNING = 32


@dataclass(frozen=True, slots=True)
class Job:
    """One request. `at_s` is when it is due in an open loop, seconds from the start."""

    prompt: tuple[int, ...]
    max_tokens: int
    at_s: float = 0.0


def load_workload(name: str) -> list[Job]:
    """Read a workload that comes with the project; raises ValueError for other names."""
    if name not in NAMES:
        raise ValueError(f"no workload named {name}; there are {', '.join(NAMES)}")
    entries = json.loads((FOLDER / f"{name}.json").read_text())
    return [Job(tuple(entry["prompt"]), entry["max_tokens"]) for entry in entries]


def running_at_most(name: str) -> int:
    """How many of a workload's requests run at once: `single` is one after the other."""
    return 1 if name == "single" else MAX_RUNNING
