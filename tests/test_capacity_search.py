"""The most of a load that a machine keeps up with."""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from bench.simulation.capacity import find_capacity, hastened
from bench.simulation.costs import StepModel
from bench.simulation.demand import Load
from bench.simulation.engine import simulate
from bench.simulation.loads import BadLoad
from bench.simulation.output import read
from bench.simulation.profile import Profile
from cli.main import app
from tests.simulations import FCFS, make_load, make_profile

STEPS = StepModel(0.0, 0.0, 1.0, 0.0, 0.0, 0.0)  # a decode row takes a second


def make_machine() -> Profile:
    return make_profile(max_rows=1, costs=STEPS)


def test_a_machine_keeps_up_with_what_it_can_compute_while_it_arrives() -> None:
    """Answers of 4 rows take 4 s, one row at a time: one in 4 s, and 5 % late at the end."""
    load = make_load(*((float(i), 1, 4) for i in range(401)))
    tried: list[float] = []
    found = find_capacity(load, make_machine(), tried.append)
    assert 1 / 4 < found.times < 1.03 * 1.05 / 4
    assert found.requests_per_s == pytest.approx(found.times * 401 / 400)
    assert found.saturated == pytest.approx(400 / 1604)
    assert len(tried) <= 8


def test_a_burst_may_wait_as_long_as_it_drains() -> None:
    even = [(10.0 * i, 1, 4) for i in range(100)]
    burst = [(10.0 * (i // 50) * 50, 1, 4) for i in range(99)] + [(990.0, 1, 4)]
    times = [find_capacity(make_load(*each), make_machine()).times for each in (even, burst)]
    assert times[1] == pytest.approx(times[0], rel=0.1)


def test_a_hastened_load_has_the_same_requests_sooner() -> None:
    load = hastened(make_load((1.0, 3, 4), (9.0, 5, 6)), 2.0)
    assert [(d.arrival.at_s, d.arrival.prompt_tokens) for d in load.demands] == [
        (0.5, 3),
        (4.5, 5),
    ]
    assert simulate(load, make_machine(), FCFS).records[1].at_s == 4.5


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (make_load((0, 1, 4), (1, 1, 4), clients=1), "closed loop"),
        (make_load((0, 1, 4), (0, 1, 4)), "all arrive at once"),
    ],
)
def test_a_load_without_a_rate_has_no_capacity(load: Load, said: str) -> None:
    with pytest.raises(BadLoad, match=said):
        find_capacity(load, make_machine())


def walkway(*arguments: str) -> Result:
    return CliRunner().invoke(
        app, ("simulate", "--no-pictures", "--profile", "h100-8b", *arguments)
    )


@pytest.mark.parametrize(
    "load", [("--trace", "sample"), ("--workload", "mixed", "--requests", "40")]
)
def test_the_capacity_is_printed_and_a_multiple_of_it_run(
    tmp_path: Path, load: tuple[str, ...]
) -> None:
    found = walkway(*load, "--capacity")
    assert found.exit_code == 0, found.output
    assert found.stdout.startswith("capacity: ") and "requests/s" in found.stdout
    ran = walkway(*load, "--load", "2", "--scheduler", "fcfs", "--out", str(tmp_path))
    assert ran.exit_code == 0 and found.stdout in ran.stderr
    simulated = read(tmp_path / "simulation.json")
    assert simulated.load.endswith("2 times the capacity")
    assert simulated.runs[0].busy > 0.95


def test_a_capacity_is_not_looked_for_where_the_rate_is_given() -> None:
    ran = walkway("--trace", "sample", "--speedup", "2", "--capacity")
    assert ran.exit_code == 2 and "--speedup sets it" in ran.stderr
    ran = walkway("--workload", "mixed", "--clients", "2", "--capacity")
    assert ran.exit_code == 2 and "closed loop" in ran.stderr


def test_a_capacity_for_programs_is_json() -> None:
    ran = walkway("--trace", "sample", "--requests", "20", "--capacity", "--json")
    assert ran.exit_code == 0, ran.output
    found = msgspec.json.decode(ran.stdout)
    assert found["load"] == "trace azure_conversation_sample, 20 requests"
    assert found["requests_per_s"] > 0 and found["times"] > 0 and found["saturated"] > 0


@pytest.mark.parametrize("idle", [("--scheduler", "fair"), ("--bound",), ("--load", "2")])
def test_nothing_is_run_with_a_capacity_or_said_to_be(idle: tuple[str, ...]) -> None:
    ran = walkway("--trace", "sample", "--capacity", *idle)
    assert ran.exit_code == 2 and idle[0] in ran.stderr and not ran.stdout


def test_a_simulation_needs_a_strategy() -> None:
    ran = walkway("--trace", "sample")
    assert ran.exit_code == 2 and "--scheduler" in ran.stderr
