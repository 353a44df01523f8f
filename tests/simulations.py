"""Builders of small loads and profiles to simulate."""

from collections.abc import Sequence

from bench.simulation.choice import Choice
from bench.simulation.costs import StepModel
from bench.simulation.demand import Demand, Load, Rules, demands
from bench.simulation.engine import simulate
from bench.simulation.profile import Profile
from bench.simulation.record import Record
from bench.simulation.run import Run
from bench.trace import Arrival

# Powers of two: sums of them are exact.
COSTS = StepModel(
    fixed_s=1.0,
    token_s=0.25,
    row_s=0.125,
    context_token_s=1 / 64,
    pair_s=1 / 1024,
    page_s=1 / 16,
)
FCFS = Choice("fcfs", "fcfs")


def make_profile(
    pages: int = 100, host: int = 0, page_size: int = 2, **other: object
) -> Profile:
    usual = {
        "max_rows": 4,
        "max_step_tokens": 8,
        "context_tokens": 4096,
        "watermark_pages": 0,
        "costs": COSTS,
    }
    return Profile(
        name="small",
        source="modelled",
        note="made up",
        device_pages=pages,
        host_pages=host,
        page_size=page_size,
        **(usual | other),
    )


def make_load(*arrivals: tuple[float, int, int], clients: int | None = None) -> Load:
    """From (seconds, prompt tokens, output tokens)."""
    return Load("load", [Demand(Arrival(*arrival)) for arrival in arrivals], clients)


def dressed(arrivals: Sequence[Arrival], rules: Rules) -> Load:
    return Load("load", demands(arrivals, rules, COSTS.alone_s))


def run_checked(load: Load, profile: Profile, choice: Choice = FCFS) -> Run:
    """Every invariant is asserted after every change."""
    return simulate(load, profile, choice, check=True)


def times(record: Record) -> tuple[float | None, float]:
    return record.first_s, record.ended_s
