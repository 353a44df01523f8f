"""`walkway advise`: which strategy and limits serve a trace best."""

import tomllib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from bench.advice.candidates import strategies
from bench.advice.objective import GOODPUT, URGENT, Score
from bench.advice.settings import as_toml
from bench.advice.trial import Candidate
from bench.simulation.choice import Choice
from bench.simulation.demand import Rules
from bench.simulation.profile import save
from bench.trace import Arrival
from cli.main import app
from service.config import load_settings
from tests.simulations import dressed, make_profile

Request = tuple[float, int, int]


def advise(folder: Path, requests: Sequence[Request], *options: str, rows: int = 4) -> Result:
    """On a machine of a second a step, for (seconds, prompt tokens, output tokens)."""
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for at_s, prompt, output in requests:
        minutes, seconds = divmod(at_s, 60)
        lines.append(f"2026-01-01 00:{int(minutes):02}:{seconds:09.6f},{prompt},{output}")
    (folder / "trace.csv").write_text("\n".join(lines) + "\n")
    save(make_profile(max_rows=rows, max_step_tokens=32), folder / "small.json")
    files = ("--trace", str(folder / "trace.csv"), "--profile", str(folder / "small.json"))
    return CliRunner().invoke(app, ("advise", *files, "--jobs", "1", *options))


def settings(ran: Result) -> dict[str, dict[str, object]]:
    assert ran.exit_code == 0, ran.output
    return tomllib.loads(ran.stdout[ran.stdout.index("[scheduler]") :])


def steady(count: int, every_s: float) -> list[Request]:
    return [(every_s * number, 8, 4) for number in range(count)]


def test_few_urgent_among_many_are_served_best_by_priority(tmp_path: Path) -> None:
    ran = advise(tmp_path, steady(120, 1.0), "--priorities", "12:0.1,4:0.9")
    assert settings(ran)["scheduler"] == {"name": "priority"}
    assert "p95 TTFT of the most urgent" in ran.stdout and "next" in ran.stdout


def test_short_deadlines_behind_long_answers_are_met_best_by_deadline(tmp_path: Path) -> None:
    burst = [(8, 40)] * 4 + [(4, 2)] * 8
    requests = [(500.0 * number, *sizes) for number in range(7) for sizes in burst]
    ran = advise(tmp_path, requests, "--deadline-slack", "10", "--lengths", "told", rows=2)
    assert settings(ran)["scheduler"]["name"] == "deadline"
    assert "deadlines met" in ran.stdout


def test_a_light_tenant_next_to_a_flood_is_served_best_by_fair(tmp_path: Path) -> None:
    ran = advise(tmp_path, steady(120, 1.0), "--tenants", "flood:0.9,light:0.1")
    assert settings(ran)["scheduler"]["name"] == "fair"


def test_cached_prefixes_are_tried_where_the_trace_knows_them() -> None:
    arrivals = Arrival(0.0, 1024, 4, (1, 2)), Arrival(1.0, 1024, 4, (1, 3))
    named = [one.label for one in strategies(dressed(arrivals, Rules()))]
    assert named == ["fcfs", "shortest", "cache"]
    unnamed = [Arrival(one.at_s, 1024, 4) for one in arrivals]
    assert [one.label for one in strategies(dressed(unnamed, Rules()))] == ["fcfs", "shortest"]


def test_candidates_that_are_equal_are_told_as_equal(tmp_path: Path) -> None:
    ran = advise(tmp_path, steady(10, 60.0), "--priorities", "12:0.5,4:0.5")
    assert settings(ran) == {
        "scheduler": {"name": "fcfs"},
        "engine": {"max_rows": 4, "max_step_tokens": 32},
    }
    assert "No candidate is better" in ran.stdout and "equal to the first" in ran.stdout


def test_a_trace_of_one_request_has_no_capacity_and_is_served_by_any(tmp_path: Path) -> None:
    ran = advise(tmp_path, steady(1, 1.0))
    assert settings(ran)["scheduler"]["name"] == "fcfs"
    assert "no capacity: " in ran.stdout and "all arrive at once" in ran.stdout


def test_what_if_at_the_rate_as_it_is_adds_nothing(tmp_path: Path) -> None:
    ran = advise(tmp_path, steady(2, 1.0), "--what-if", "1", "--json")
    assert msgspec.json.decode(ran.stdout)["measures"] == ["requests within the SLO"]


def test_a_strategy_whose_plans_are_refused_is_not_advised(tmp_path: Path) -> None:
    """The core falls back to fcfs, which would be advised under its name."""
    ran = advise(tmp_path, steady(9, 1.0), "--scheduler", "tests.bad_schedulers:OverBudget")
    assert ran.exit_code == 1 and not ran.stdout
    assert "OverBudget: scheduler fault" in ran.stderr


def test_a_limit_is_followed_as_far_as_it_helps(tmp_path: Path) -> None:
    """Prompts of 8 pages; steps cost the more the more they prefill."""
    ran = advise(tmp_path, steady(40, 4.0), "--json", "--slo-ttft", "40", rows=1)
    assert ran.exit_code == 0, ran.output
    found = msgspec.json.decode(ran.stdout)
    assert tomllib.loads(found["settings"])["engine"]["max_rows"] > 2
    assert found["objective"] == "goodput" and found["capacity"] > 0
    assert found["ranked"][0]["scores"][0] > found["ranked"][-1]["scores"][0]


@pytest.mark.parametrize(
    ("one", "better"),
    [
        (Score(0.505, (0.5, 0.51), 40_000), False),
        (Score(0.52, (0.52, 0.52), 40_000), True),
        (Score(0.52, (0.52, 0.52), 400), False),
        (Score(0.6, (0.75, 0.45), 400), True),
        (Score(0.6, (0.85, 0.35), 400), False),
    ],
)
def test_a_share_is_better_above_the_noise_and_in_no_half_as_much_worse(
    one: Score, better: bool
) -> None:
    half = Score(0.5, (0.5, 0.5), 400)
    assert GOODPUT.better(one, half) is better
    assert not GOODPUT.better(half, one)


def test_seconds_are_better_when_a_tenth_shorter_and_never_when_none_came() -> None:
    inf = float("inf")
    slow, never = Score(1.0, (1.0, 1.0), 900), Score(inf, (1.0, inf), 900)
    assert URGENT.better(Score(0.8, (0.8, 0.9), 900), slow)
    assert not URGENT.better(Score(0.95, (0.9, 1.0), 900), slow)
    assert not URGENT.better(Score(0.8, (0.8, 0.9), 9), slow)
    assert URGENT.better(slow, never)
    assert not URGENT.better(never, slow) and not URGENT.better(never, never)


def test_the_settings_are_those_of_the_service(tmp_path: Path) -> None:
    weights = {"team a": 2.0, "🐎": 1e-05, "best": float("inf")}
    options = {"eviction": "swap", "weights": weights}
    candidate = Candidate(
        Choice("fair", "fair", options), {"target_gap_s": 0.05, "max_rows": 8}
    )
    path = tmp_path / "walkway.toml"
    path.write_text(as_toml(candidate, make_profile(max_step_tokens=32)))
    found = load_settings(path, [])
    assert (found.scheduler.name, found.scheduler.options) == ("fair", options)
    engine = found.engine
    assert (engine.max_rows, engine.max_step_tokens, engine.target_gap_ms) == (8, 32, 50)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--scheduler", "fifo"), "scheduler 'fifo' is unknown"),
        (("--priorities", "high:1"), "--priorities: 'high' is not 0 to 15"),
        (("--limit", "rows=1"), "no limit 'rows'"),
        (("--start", "1e9"), "no requests to simulate"),
        (("--objective", "luck"), "'luck' is not one of"),
        (("--objective", "deadlines"), "see --deadline-slack"),
        (("--objective", "urgent"), "see --priorities"),
        (("--objective", "tenants"), "see --tenants"),
        (("--deadline-share", "0.5"), "--deadline-share needs a deadline"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    ran = advise(tmp_path, steady(2, 1.0), *options)
    assert ran.exit_code == 2
    assert said in ran.stderr and ran.stderr.count("\n") == 1
