"""`walkway simulate` and `walkway calibrate`, as they are typed."""

import csv
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from bench.recording import Recording
from bench.recording import save as save_recording
from bench.samples import Answer
from bench.simulation import agreement
from bench.simulation.catalogue import find_profile
from bench.simulation.output import read
from cli.main import app

PNG = b"\x89PNG\r\n\x1a\n"
PLAIN = ("simulate", "--no-pictures")
SMALL = ("--trace", "sample", "--requests", "12", "--profile", "h100-8b")


def walkway(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_simulation_shows_tables_and_writes_its_files(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = walkway(
        *("simulate", *SMALL, "--speedup", "50", "--out", str(out)),
        *("--scheduler", "fcfs", "--scheduler", "fcfs eviction=swap"),
        *("--priorities", "0:0.5,8:0.5", "--tenants", "flood:0.7,light:0.3"),
        *("--deadline-slack", "20", "--gantt", "0:1"),
        *("--limit", "device_pages=100", "--limit", "host_pages=200", "--limit", "max_rows=8"),
        *("--limit", "watermark_pages=0"),
    )
    assert ran.exit_code == 0, ran.output
    for shown in ("modelled", "swap pages", "priority 8", "tenant light"):
        assert shown in ran.output
    simulated = read(out / "simulation.json")
    assert [run.scheduler for run in simulated.runs] == ["fcfs", "fcfs eviction=swap"]
    assert simulated.profile.device_pages == 100
    raw = msgspec.json.decode((out / "simulation.json").read_bytes())
    assert all(len(gauge) == 7 for gauge in raw["runs"][0]["gauges"])
    assert simulated.runs[0].recomputed_tokens and simulated.runs[1].swapped_tokens
    pictures = ["latencies", "goodput"]
    for name in ("fcfs", "fcfs-eviction=swap"):
        assert len((out / f"{name}.csv").read_text().splitlines()) == 13
        pictures += [name, f"{name}-gantt"]
    for picture in pictures:
        assert (out / f"{picture}.png").read_bytes().startswith(PNG)


def test_lengths_costs_and_wishes_for_streams_are_options(tmp_path: Path) -> None:
    wishes = ("--first-token-slack", "9", "--pace", "20", "--deadline-share", "0.5")
    told = (*PLAIN, *SMALL, *wishes, "--scheduler", "fcfs", "--scheduler", "swap")
    wrong = ("--lengths", "untold", "--cost-error", "-0.3")
    shown = []
    for name, chosen in (("told", told), ("wrong", (*told, *wrong))):
        ran = walkway(*chosen, "--out", str(tmp_path / name))
        assert ran.exit_code == 0, ran.output
        text = " ".join(ran.output.replace(f"/{name}", "").split())
        shown.append(text.replace(", lengths untold, costs told -30%", ""))
    assert shown[0] == shown[1] and "first-token deadlines" in shown[0]
    lines = (tmp_path / "wrong" / "fcfs.csv").read_text().splitlines()
    rows = list(csv.DictReader(lines))
    assert {row["ended"] for row in rows} == {"stop"}
    assert {row["tokens_per_second"] for row in rows} == {"", "20.0"}


def test_a_simulation_is_json_for_programs(tmp_path: Path) -> None:
    ran = walkway(*PLAIN, *SMALL, "--scheduler", "fcfs", "--json", "--out", str(tmp_path))
    assert ran.exit_code == 0
    assert msgspec.json.decode(ran.stdout)["runs"][0]["scheduler"] == "fcfs"
    assert ran.stdout == (tmp_path / "simulation.json").read_text()


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "fcfs.csv").mkdir()
    ran = walkway(*PLAIN, *SMALL, "--scheduler", "fcfs", "--out", str(tmp_path))
    assert ran.exit_code == 2
    assert ran.stderr.splitlines()[-1] == f"walkway: {tmp_path / 'fcfs.csv'}: Is a directory"


def test_the_same_call_writes_the_same_bytes(tmp_path: Path) -> None:
    calls = (*PLAIN, *SMALL, "--scheduler", "fair", "--tenants", "a:1,b:1", "--out")
    for name in ("one", "two"):
        assert walkway(*calls, str(tmp_path / name)).exit_code == 0
    for file in ("simulation.json", "fair.csv"):
        first, second = (tmp_path / name / file for name in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()
    assert not list(tmp_path.rglob("*.png"))


@pytest.mark.parametrize("profile", ["cpu", "h200x4-70b"])
def test_a_workload_is_simulated_without_a_trace(tmp_path: Path, profile: str) -> None:
    chosen = ("--profile", profile, "--workload", "mixed", "--requests", "20")
    ran = walkway(
        *(*PLAIN, *chosen, "--limit", "max_rows=8", "--out", str(tmp_path)),
        *("--scheduler", "fcfs", "--scheduler", "static"),
    )
    assert ran.exit_code == 0, ran.output
    continuous, static = read(tmp_path / "simulation.json").runs
    assert continuous.output_tokens_per_s > static.output_tokens_per_s


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--scheduler", "fifo"), "scheduler 'fifo' is unknown"),
        (("--scheduler", "fcfs colour=red"), "no option 'colour'"),
        (("--scheduler", "fcfs eviction"), "not of the form option=value"),
        (("--scheduler", "fcfs", "--profile", "tpu"), "no profile 'tpu'"),
        (("--scheduler", "fcfs", "--trace", "absent.csv"), "walkway: absent.csv: No such file"),
        (("--scheduler", "fcfs", "--workload", "odd"), "no workload named odd"),
        (("--scheduler", "fcfs", "--limit", "rows=1"), "no limit 'rows'"),
        (("--scheduler", "fcfs", "--limit", "max_rows=many"), "limits: Expected `int`"),
        (("--scheduler", "fcfs", "--limit", "target_gap_s=inf"), "limits: Expected `float` <="),
        (("--scheduler", "fcfs", "--limit", "target_gap_s=nan"), "limits: Expected `float`"),
        (("--scheduler", "fcfs", "--tenants", "a"), "not of the form VALUE:SHARE"),
        (
            ("--scheduler", "fcfs", "--priorities", "high:1"),
            "--priorities: 'high' is not 0 to 15",
        ),
        (("--scheduler", "fcfs", "--priorities", "16:1"), "--priorities: '16' is not 0 to 15"),
        (("--scheduler", "fcfs", "--gantt", "3"), "not START:SECONDS"),
        (("--scheduler", "fcfs", "--gantt", "3:nan"), "not a stretch of time"),
        (("--scheduler", "fcfs", "--gantt", "3:0"), "not a stretch of time"),
        (("--scheduler", "fcfs", "--profile", "no.json"), "profile no.json: No such file"),
        (("--scheduler", "fcfs", "--trace", "sample", "--start", "1e9"), "no requests"),
        (("--scheduler", "fcfs", "--deadline-share", "0.5"), "--deadline-share needs"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    ran = walkway(*PLAIN, "--out", str(tmp_path), *arguments)
    assert ran.exit_code == 2
    assert said in ran.stderr and ran.stderr.count("\n") == 1


def test_a_calibrated_profile_can_be_simulated(tmp_path: Path) -> None:
    path = tmp_path / "here.json"
    ran = walkway(
        *("calibrate", "--out", str(path), "--repeats", "1", "--set", "model.source=toy"),
        *("--set", "memory.num_pages=600", "--set", "memory.host_bytes=20000"),
        *("--set", "engine.max_rows=16", "--set", "engine.max_step_tokens=256", "--json"),
    )
    assert ran.exit_code == 0, ran.output
    assert ran.stdout == path.read_text()
    profile = find_profile(str(path))
    assert (profile.name, profile.source, profile.device_pages) == ("here", "measured", 599)
    assert (profile.max_rows, profile.max_step_tokens, profile.host_pages) == (16, 256, 156)
    assert profile.costs.row_s > 0
    chosen = ("--profile", str(path), "--requests", "5", "--scheduler", "fcfs")
    assert walkway(*PLAIN, *chosen, "--out", str(tmp_path)).exit_code == 0


def test_calibrating_without_room_or_with_a_bad_setting_is_one_line(tmp_path: Path) -> None:
    call = ("calibrate", "--out", str(tmp_path / "p.json"), "--set", "model.source=toy")
    small = (
        "--set",
        "memory.num_pages=2",
        "--set",
        "engine.max_step_tokens=5",
        "--set",
        "engine.max_rows=4",
    )
    for chosen, said in ((small, "too small"), (("--set", "engine.rows=1"), "unknown")):
        ran = walkway(*call, *chosen)
        assert ran.exit_code == 2 and said in ran.stderr


def test_a_real_and_a_simulated_run_are_laid_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert walkway(*PLAIN, *SMALL, "--scheduler", "fcfs", "--out", str(tmp_path)).exit_code == 0
    answers = [Answer(0.0, 0.0, 5.0, 4, ((1.0, 1), (5.0, 2)))]
    save_recording(Recording("load", "service", answers, []), tmp_path / "real.json")
    paths = (str(tmp_path / "real.json"), str(tmp_path / "simulation.json"))
    monkeypatch.setattr(sys, "argv", ["agreement", *paths])
    assert agreement.main() == 0
    printed = capsys.readouterr().out
    assert "output tokens/s" in printed and "TTFT p50, s" in printed
    (tmp_path / "real.json").write_text("{}")
    assert agreement.main() == 2
    assert "bench.simulation.agreement" in capsys.readouterr().err


def test_the_bound_is_shown_beside_the_runs_and_written(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path))
    asked = ("simulate", *SMALL, "--bound", "--scheduler", "fcfs", *out)
    ran = walkway(*asked, "--deadline-slack", "9")
    assert ran.exit_code == 0, ran.output
    assert "bound" in ran.output
    limit = read(tmp_path / "simulation.json").bound
    assert limit is not None and limit.deadlines_met == 1.0
    assert (tmp_path / "goodput.png").read_bytes().startswith(PNG)
    closed = walkway("simulate", "--bound", "--scheduler", "fcfs", *out)
    assert closed.exit_code == 2 and "closed loop" in closed.output


def test_two_runs_that_would_write_the_same_file_are_refused(tmp_path: Path) -> None:
    twice = ("--scheduler", "fcfs eviction=swap", "--scheduler", "fcfs  eviction=swap")
    ran = walkway(*PLAIN, *SMALL, *twice, "--out", str(tmp_path))
    assert ran.exit_code == 2 and "fcfs-eviction=swap.csv" in ran.stderr


@pytest.mark.parametrize(
    "limits", [("target_gap_s=0",), ("max_rows=8", "max_step_tokens=8")], ids=str
)
def test_limits_that_the_service_would_refuse_are_refused(limits: tuple[str, ...]) -> None:
    options = [part for limit in limits for part in ("--limit", limit)]
    ran = walkway(*PLAIN, *SMALL, "--scheduler", "fcfs", *options)
    assert ran.exit_code == 2 and limits[-1].partition("=")[0] in ran.stderr
