"""The study of strategies on traces, machines and loads."""

from pathlib import Path

import msgspec
import pytest

from bench.simulation.demand import Demand
from bench.simulation.record import Record
from bench.study import sources
from bench.study.__main__ import main
from bench.study.cells import Cell, Ground
from bench.study.matrix import Matrix
from bench.study.outcome import Outcome
from bench.study.output import Study
from bench.study.scenarios import IDLE
from bench.study.service import least_share, service_difference
from bench.study.store import Line, Store
from bench.study.targets import Target, verdicts
from bench.trace import Arrival

PNG = b"\x89PNG\r\n\x1a\n"
GROUND = Ground("sample", "sample", "h100-8b", 64, 40)
SMALL = ("--requests", "40", "--jobs", "1", "--load", "1", "--load", "4", "--out")


def make_record(number: int, at_s: float, first_s: float, last_s: float, tenant: str) -> Record:
    demand = Demand(Arrival(at_s, 100, 50), tenant=tenant)
    return Record(number, demand, at_s, first_s, last_s, last_s, tokens=50)


def test_a_study_writes_tables_pictures_and_targets_and_goes_on_where_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = tmp_path / "docs"
    call = (*SMALL, str(tmp_path), "--scenario", "urgent", "--scenario", "tenants")
    call += ("--pictures", str(pictures))
    assert main(call) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "priority" in shown and "idle" in shown and "target" in shown
    study = msgspec.json.decode((tmp_path / "study.json").read_bytes(), type=Study)
    assert study.capacities[0].ground == GROUND and study.capacities[0].speedup > 0
    assert any(target.cells for target in study.targets)
    assert (tmp_path / "urgent-urgent_ttft_p95_s.png").read_bytes().startswith(PNG)
    assert len(list(pictures.glob("*.png"))) == 2 and len(list(tmp_path.glob("*.png"))) > 2
    kept = (tmp_path / "study.jsonl").read_bytes()
    assert main((*call, "--scheduler", "fcfs", "--scheduler", "fair")) == 0
    assert (tmp_path / "study.jsonl").read_bytes() == kept


def test_urgent_requests_one_after_another_wait_for_none(tmp_path: Path) -> None:
    assert main((*SMALL, str(tmp_path), "--scenario", "urgent")) == 0
    study = msgspec.json.decode((tmp_path / "study.json").read_bytes(), type=Study)
    at_most = {
        (result.cell.strategy, result.cell.load): result.outcome.urgent_ttft_p95_s
        for result in study.results
    }
    assert at_most["idle", 1.0] <= at_most["alone", 4.0] <= at_most["fcfs", 4.0]


def test_no_strategy_exceeds_the_bound(tmp_path: Path) -> None:
    assert main((*SMALL, str(tmp_path), "--scenario", "deadlines")) == 0
    study = msgspec.json.decode((tmp_path / "study.json").read_bytes(), type=Study)
    met = {(r.cell.strategy, r.cell.load): r.outcome.deadlines_met for r in study.results}
    for load in (1.0, 4.0):
        assert max(met["fcfs", load], met["deadline", load]) <= met["bound", load] <= 1


def test_two_processes_find_the_same_as_one(tmp_path: Path) -> None:
    call = ("--scenario", "tenants", "--requests", "12", "--load", "2", "--out")
    for jobs in ("1", "2"):
        assert main((*call, str(tmp_path / jobs), "--jobs", jobs)) == 0
    one, two = ((tmp_path / jobs / "study.jsonl").read_text() for jobs in ("1", "2"))
    assert sorted(one.splitlines()) == sorted(two.splitlines())


def test_a_line_that_is_not_whole_is_run_again(tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    store, cell = Store(path), Cell(GROUND, "urgent", "fcfs", 1.0)
    store.add(Line(GROUND, "code", capacity=2.0))
    store.add(Line(GROUND, "code", cell, Outcome()))
    path.write_bytes(path.read_bytes()[:-5])
    again = Store(path)
    assert again.capacity(GROUND, "code") == 2.0 and again.capacity(GROUND, "other") is None
    assert again.outcome(cell, "code") is None
    again.add(Line(GROUND, "code", cell, Outcome()))
    assert Store(path).outcome(cell, "code") == Outcome()


def test_a_result_is_of_its_code_but_not_of_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    (tmp_path / "rule.py").write_text("from part import one\n")

    def digest(part: str) -> str:
        (tmp_path / "part.py").write_text(part)
        for kept in (sources.digest, sources._imports, sources._code):
            kept.cache_clear()
        return sources.digest("", "rule")

    before = digest('def one():\n    """Says it."""\n    return 1\n')
    assert digest('def one():\n    """Other words."""\n    return 1  # why\n') == before
    assert digest('def one():\n    """Says it."""\n    return 2\n') != before


def test_the_least_share_is_of_the_slice_that_gave_least() -> None:
    others = [make_record(n, n, n + 0.5, n + 0.6, "a") for n in range(5)]
    urgent = [make_record(9, 5.0, 5.5, 5.6, "a"), make_record(10, 10.0, 11.0, 11.0, "a")]
    assert least_share([*others, *urgent], others) == 0.0
    assert least_share([*others, *urgent[1:]], others) == 1.0


def test_the_service_difference_is_of_the_stretch_that_favoured_one_most() -> None:
    """Each answer is 100 tokens and 50 that weigh twice."""
    one = [make_record(n, n, n + 0.5, n + 0.5, "a") for n in range(4, 8)]
    other = [make_record(n, n, n + 0.5, n + 0.5, "b") for n in range(20)]
    assert service_difference({"a": one, "b": other[:4] + other[8:]}) == pytest.approx(2200)
    assert service_difference({"a": one, "b": [*other[4:8], other[-1]]}) == 0.0
    early = [make_record(n, n / 100, 0.5, 0.5, "a") for n in range(90)]
    assert service_difference({"a": early + one, "b": other[:4] + other[8:]}) == pytest.approx(
        2200
    )
    assert service_difference({"a": one}) is None


@pytest.mark.parametrize(
    ("met", "reached", "where"),
    [(0.5, 2, "sample h100-8b 64 at 1"), (0.2, 1, "sample h100-8b 64 at 2")],
)
def test_a_target_is_missed_by_its_worst_cell(met: float, reached: int, where: str) -> None:
    target = Target("more", "deadlines", "deadline", "deadlines_met", 1.0, "fcfs")
    met_by = {("fcfs", 1.0): 0.5, ("fcfs", 2.0): 0.3, ("deadline", 1.0): 0.5}
    outcomes = {
        Cell(GROUND, "deadlines", strategy, load): Outcome(deadlines_met=share)
        for (strategy, load), share in (met_by | {("deadline", 2.0): met}).items()
    }
    (verdict,) = verdicts(Matrix({GROUND: 1.0}, outcomes), (target,))
    assert (verdict.reached, verdict.cells, verdict.where) == (reached, 2, where)
    assert verdict.passed is (reached == 2)


def test_an_idle_machine_is_the_same_reference_for_every_load() -> None:
    target = Target("soon", "urgent", "priority", "urgent_ttft_p95_s", 2.0, IDLE, at_most=True)
    waits = {(IDLE, 1.0): 1.0, ("priority", 1.0): 2.0, ("priority", 2.0): 3.0}
    outcomes = {
        Cell(GROUND, "urgent", strategy, load): Outcome(urgent_ttft_p95_s=wait_s)
        for (strategy, load), wait_s in waits.items()
    }
    (verdict,) = verdicts(Matrix({GROUND: 1.0}, outcomes), (target,))
    assert (verdict.reached, verdict.cells, verdict.worst) == (1, 2, 3.0)


def test_a_mistake_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main((*SMALL, str(tmp_path), "--trace", "absent=absent.csv")) == 2
    assert "absent.csv" in capsys.readouterr().err
    assert main((*SMALL, str(tmp_path), "--profile", "tpu")) == 2
    assert "bench.study: no profile 'tpu'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--load", "0"), "'0' is no number above 0"),
        (("--load", "nan"), "'nan' is no number above 0"),
        (("--rows", "0"), "'0' is no whole number of at least 1"),
        (("--requests", "some"), "'some' is no whole number of at least 1"),
        (("--scheduler", "nosuch"), "invalid choice: 'nosuch'"),
    ],
)
def test_arguments_that_make_no_study_are_named(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--scenario", "tenants", "--scheduler", "deadline"), "nothing to run"),
        (("--trace", "a=sample", "--trace", "a=other.csv"), "the same label: a, a"),
        (("--scenario", "urgent", "--requests", "3", "--load", "1"), "none is urgent"),
    ],
)
def test_a_study_of_nothing_is_refused(
    tmp_path: Path,
    arguments: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(("--jobs", "1", "--out", str(tmp_path), *arguments)) == 2
    assert said in capsys.readouterr().err
