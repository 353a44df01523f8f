"""The bench that replays recorded traffic on the real engine and in the simulator."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bench.overload.client import LEFT, Reply
from bench.replay import __main__ as replay
from bench.replay import course
from bench.replay.capacity import capacity_per_s
from bench.replay.figures import figures
from bench.replay.machine import slowed
from bench.replay.order import order
from bench.replay.seen import ANSWERED, LATE, REFUSED, Seen, from_records, from_replies
from bench.replay.traffic import Traffic, kept, load_of, recorded
from bench.samples import Answer
from bench.service_process import Running
from bench.simulation.catalogue import find_profile
from bench.simulation.choice import Choice
from bench.simulation.costs import Work
from bench.simulation.demand import Demand, Load
from bench.simulation.engine import simulate
from bench.simulation.figures import SLO
from bench.simulation.profile import save
from bench.trace import Arrival
from tests.test_overload_bench import Servicer, served

__all__ = ["served"]

CPU = find_profile("cpu")
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def seen(
    at_s: float = 0.0,
    first_s: float | None = 1.0,
    last_s: float = 2.0,
    how: str = ANSWERED,
    priority: int = 4,
    tenant: str = "flood",
    hurried: bool = False,
) -> Seen:
    tokens = 0 if first_s is None else 10
    return Seen(priority, tenant, hurried, 100, at_s, first_s, last_s, last_s, tokens, how)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two hundred seconds, the second hundred twice as busy."""
    path = tmp_path / "trace.csv"
    times = [*range(0, 100, 2), *range(100, 200)]
    lines = (f"2023-11-16 18:{15 + s // 60}:{s % 60:02}.0000000,100,20" for s in times)
    path.write_text(HEADER + "\n".join(lines))
    return path


def test_a_trace_keeps_its_rise_and_fall_in_the_minutes_it_gets(trace: Path) -> None:
    traffic = Traffic(trace=str(trace), minutes=0.5, tokens=0.1)
    arrivals = recorded(traffic, 8192)
    assert len(arrivals) == 150
    assert arrivals[-1].at_s == pytest.approx(30)
    assert sum(arrival.at_s < 15 for arrival in arrivals) == pytest.approx(50, abs=1)
    assert {(one.prompt_tokens, one.output_tokens) for one in arrivals} == {(10, 2)}


def test_as_many_requests_are_kept_as_the_rate_comes_to() -> None:
    arrivals = [Arrival(at_s / 10, 1, 1) for at_s in range(10_000)]
    some = kept(arrivals, 4.0, seed=1)
    assert len(some) == pytest.approx(4000, rel=0.05)
    assert some == kept(arrivals, 4.0, seed=1) != kept(arrivals, 4.0, seed=2)


def test_more_than_the_trace_has_cannot_be_kept() -> None:
    with pytest.raises(ValueError, match=r"20\.00 requests/s are wanted, 2\.00 times"):
        kept([Arrival(at_s / 10, 1, 1) for at_s in range(1, 1001)], 20.0, seed=0)


def test_a_share_of_the_callers_has_deadlines_and_the_others_patience() -> None:
    arrivals = [Arrival(float(at_s), 100, 20) for at_s in range(1000)]
    traffic = Traffic(trace="x", hurried=0.25, slack=3.0, patience_s=7.0)
    demands = load_of(traffic, arrivals, CPU).demands
    hurried = [demand for demand in demands if demand.deadline_s is not None]
    assert len(hurried) == pytest.approx(250, abs=40)
    assert hurried[0].deadline_s == pytest.approx(3 * CPU.costs.alone_s(100, 20))
    assert {demand.patience_s for demand in demands} == {7.0}
    assert {demand.priority for demand in demands} == {12, 4}
    assert {demand.tenant for demand in demands} == {"flood", "light"}


def test_a_simulated_caller_leaves_when_its_patience_ends_which_no_strategy_is_told() -> None:
    """A strategy that is told refuses what cannot be done by then."""
    first, last = Demand(Arrival(0.0, 400, 400)), Demand(Arrival(0.1, 4000, 4))
    ends = []
    for demand in (replace(last, patience_s=1.0), replace(last, deadline_s=1.0)):
        run = simulate(Load("two", [first, demand]), CPU, Choice("deadline", "deadline"))
        ends.append(from_records(run.records)[-1].how)
    assert ends == [LATE, REFUSED]


def test_real_and_simulated_requests_are_told_in_the_same_words() -> None:
    demand = Demand(Arrival(1.0, 7, 3), 12, "light", deadline_s=9.0)
    [record] = simulate(Load("one", [demand]), CPU, Choice("fcfs", "fcfs")).records
    [simulated] = from_records([record])
    answer = Answer(1.0, 1.0, 2.0, 7, ((1.5, 1), (2.0, 2)))
    [real] = from_replies([demand], [Reply("light", answer)])
    assert real == Seen(12, "light", True, 7, 1.0, 1.5, 2.0, 2.0, 3, ANSWERED)
    assert real.ttft_s == 0.5 and real.tpot_s == 0.25
    for name in ("priority", "tenant", "hurried", "prompt_tokens", "output_tokens", "how"):
        assert getattr(simulated, name) == getattr(real, name)
    late = replace(answer, status="DEADLINE_EXCEEDED")
    failed = [
        Reply("x", late, refused=True),
        Reply("x", late),
        Reply("x", replace(answer, status=LEFT)),
        Reply("x", replace(answer, status="UNAVAILABLE")),
    ]
    hows = [one.how for one in from_replies([demand] * 4, failed)]
    assert hows == [REFUSED, LATE, LATE, "UNAVAILABLE"]


def test_service_is_counted_when_it_was_given() -> None:
    one = seen(first_s=1.0, last_s=2.0)
    assert one.computed(0, 10) == 110
    assert one.computed(0, 1.5) == 105
    assert one.computed(1.5, 10) == 5
    assert one.computed(3, 10) == 0
    assert seen(first_s=1.0, last_s=1.0).computed(0, 2) == 110
    assert seen(first_s=None).computed(0, 10) == 0


def test_figures_are_of_classes_and_of_those_answered() -> None:
    traffic = Traffic(trace="x", minutes=0.1)
    some = [
        seen(priority=12, tenant="light"),
        seen(at_s=0.5, hurried=True),
        seen(first_s=None, how=LATE, hurried=True),
    ]
    found = figures(traffic, SLO(ttft_s=0.6, tpot_s=1.0), some)
    assert found["answered_share"] == pytest.approx(2 / 3)
    assert found["in_slo_share"] == pytest.approx(1 / 3)
    assert found["priority_12_ttft_p95_s"] == 1.0
    assert found["tenant_light_service_share"] == 0.5
    assert found["hurried_answered_share"] == 0.5
    assert found["computed_tokens_per_s"] == pytest.approx(220 / 6)


@pytest.mark.parametrize(
    ("name", "real", "simulated", "said"),
    [
        ("ttft_p95_s", [1.0, 2.0, 4.0], [0.5, 0.8, 9.0], "yes: 3 of 3"),
        ("ttft_p95_s", [1.0, 2.0, 4.0], [0.8, 0.5, 9.0], "NO: 2 of 3"),
        ("ttft_p95_s", [1.0, 1.05, 4.0], [0.8, 0.5, 9.0], "yes: 2 of 3, 1 close"),
        ("ttft_p50_s", [0.01, 0.05], [0.9, 0.1], "-: 0 of 1, 1 close"),
        ("met_share", [0.50, 0.52], [0.1, 0.9], "-: 0 of 1, 1 close"),
        ("ttft_p95_s", [1.0, float("nan")], [3.0, float("nan")], "yes: 1 of 1"),
    ],
)
def test_an_order_agrees_where_both_find_the_same_differences(
    name: str, real: list[float], simulated: list[float], said: str
) -> None:
    assert str(order(name, real, simulated)) == said


def test_capacity_is_what_the_machine_keeps_up_with_of_the_trace() -> None:
    arrivals = [Arrival(number / 40, 100, 20) for number in range(4000)]
    found = capacity_per_s(arrivals, CPU, seed=0)
    at_once = Load("at once", [Demand(replace(one, at_s=0.0)) for one in arrivals[:400]])
    busy_per_s = 400 / simulate(at_once, CPU, Choice("fcfs", "fcfs")).ended_s
    assert 0.8 * busy_per_s < found < 1.1 * busy_per_s


def test_a_slower_machine_takes_longer_for_every_step() -> None:
    work = Work(prefill_tokens=10, rows=3, context_tokens=99, pairs=55, pages=2)
    assert slowed(CPU, 1.5).costs.seconds(work) == pytest.approx(1.5 * CPU.costs.seconds(work))


class Services:
    """Hands out the servicer of the overload bench's tests instead of starting services."""

    def __init__(self, running: Running) -> None:
        self.started: list[str] = []
        self.failing: str | None = None
        self._running = running

    @contextmanager
    def service(self, settings: Sequence[str]) -> Iterator[Running]:
        name = settings[-1].partition("=")[2]
        if name == self.failing:
            raise RuntimeError("the service ended with code 2")
        self.started.append(name)
        yield self._running


@pytest.fixture
def services(served: tuple[Servicer, Running], monkeypatch: pytest.MonkeyPatch) -> Services:
    found = Services(served[1])
    monkeypatch.setattr(course, "service", found.service)
    monkeypatch.setattr(course, "drag", lambda *_: 1.0)
    monkeypatch.setattr(course, "capacity_per_s", lambda *_: 3.0)
    monkeypatch.setattr(replay, "leave_on_sigterm", lambda: None)
    return found


def command(trace: Path, out: Path, *more: str) -> int:
    save(CPU, out.parent / "profile.json")
    measured = ["--profile", str(out.parent / "profile.json"), "--out", str(out)]
    return replay.main(
        ["--trace", str(trace), "--minutes", "0.02", "--times", "4", *measured, *more]
    )


def test_real_and_simulated_figures_stand_beside_each_other(
    services: Services, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert command(trace, out, "fcfs", "fair") == 0
    table = (out / "replay.txt").read_text()
    assert table in capsys.readouterr().out
    assert "4 times the capacity of" in table
    assert "| answered, %" in table
    assert json.loads((out / "replay.json").read_text())["drag"] == 1.0
    real = json.loads((out / "real-fcfs.json").read_text())["seen"]
    simulated = json.loads((out / "simulated-fcfs.json").read_text())["seen"]
    assert len(real) == len(simulated) > 3
    assert [one[:4] for one in real] == [one[:4] for one in simulated]


def test_a_replay_that_was_broken_off_goes_on_with_what_is_missing(
    services: Services, trace: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    services.failing = "fair"
    assert command(trace, out, "fcfs", "fair") == 1
    assert not (out / "real-fair.json").exists()
    services.failing = None
    services.started.clear()
    assert command(trace, out, "fcfs", "fair") == 0
    assert services.started == ["fair"]


def test_a_folder_holds_one_load(
    services: Services, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert command(trace, out, "fcfs") == 0
    assert command(trace, out, "--seed", "7", "fcfs") == 2
    assert "runs of another load" in capsys.readouterr().err


def test_a_strategy_that_there_is_not_is_found_before_anything_runs(
    services: Services, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(trace, tmp_path / "out", "priority speed=3") == 2
    assert "no option 'speed'" in capsys.readouterr().err
    assert services.started == []
