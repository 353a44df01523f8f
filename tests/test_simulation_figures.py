"""What a simulated run comes to."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from bench.recording import Recording
from bench.recording import save as save_recording
from bench.samples import Answer, Spread, summarise
from bench.simulation import plots
from bench.simulation.agreement import agreement
from bench.simulation.catalogue import find_profile, names
from bench.simulation.choice import Choice
from bench.simulation.demand import Demand, Load, Rules
from bench.simulation.engine import simulate
from bench.simulation.figures import SLO, figures, grouped, usual_slo
from bench.simulation.loads import Repeat, workload_load
from bench.simulation.output import Simulated, file_name, read, save
from bench.simulation.run import MOST_GAUGES, Gauges, Run, Waste
from bench.simulation.tables import tables
from bench.trace import Arrival
from service.messages import StepStats
from tests.simulations import (
    make_load,
    make_profile,
    run_checked,
)


def test_waste_is_weighed_by_slots_and_time() -> None:
    waste = Waste()
    for held, used, seconds in ((0, 0, 9.0), (10, 5, 4.0), (100, 100, 2.0)):
        waste.add(held, used, seconds)
    assert waste.share == 20 / 240
    assert waste.peak == 0.5


def test_gauges_are_thinned_evenly() -> None:
    gauges = Gauges()
    for step in range(1, 10 * MOST_GAUGES + 1):
        gauges.add(float(step), StepStats(), 0)
    times_s = [gauge.at_s for gauge in gauges.kept]
    assert MOST_GAUGES / 4 < len(times_s) < MOST_GAUGES
    assert len({after - before for before, after in pairwise(times_s)}) == 1


def test_figures_tell_classes_and_goodput_and_survive_their_file(tmp_path: Path) -> None:
    demands = [
        Demand(Arrival(0, 4, 2), priority=0, tenant="a", deadline_s=100.0),
        Demand(Arrival(0, 4, 40), priority=8, tenant="b", deadline_s=10.0),
        Demand(Arrival(50, 4, 2), priority=8, tenant="b"),
    ]
    profile = make_profile()
    run = run_checked(Load("load", demands), profile)
    found = figures(run, profile, SLO(ttft_s=3.0, tpot_s=2.0))
    assert [one.name for one in found.classes] == [
        "all",
        "priority 0",
        "priority 8",
        "tenant a",
        "tenant b",
    ]
    everybody, urgent = found.classes[0], found.classes[2]
    assert everybody.ended == {"length": 2, "expired": 1}
    assert everybody.deadlines_met == 0.5 and urgent.deadlines_met == 0.0
    assert everybody.good == pytest.approx(1 / 3)  # two prefills at once take 3.02 s
    assert found.goodput_per_s == pytest.approx(1 / run.ended_s)
    simulated = Simulated("load", profile, SLO(2.0, 0.1), [found])
    save(simulated, tmp_path / "simulation.json")
    assert read(tmp_path / "simulation.json") == simulated


def test_first_tokens_and_paces_are_counted_and_shown_where_they_are_wanted() -> None:
    demands = [
        Demand(Arrival(0, 4, 5), first_token_deadline_s=5.0, tokens_per_second=9.0),
        Demand(Arrival(50, 4, 5), first_token_deadline_s=1.0),
        Demand(Arrival(99, 4, 5), told=False),
    ]
    profile = make_profile()
    found = figures(run_checked(Load("load", demands), profile), profile, SLO(3.0, 2.0))
    everybody = found.classes[0]
    assert (everybody.first_tokens_met, everybody.paces_met) == (0.5, 0.0)
    shown = _shown(tables([found], SLO(3.0, 2.0)))
    assert "fcfs 50.0% 0.0%" in shown
    assert "stop" not in shown
    plain = figures(mixed_run("fcfs"), profile, SLO(3.0, 2.0))
    assert plain.classes[0].paces_met is None
    assert "paces" not in _shown(tables([plain], SLO(3.0, 2.0)))


def _shown(found: Iterable[Table]) -> str:
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        for table in found:
            console.print(table)
    return " ".join(captured.get().split())


def test_labels_become_file_names() -> None:
    assert file_name("fcfs eviction=swap") == "fcfs-eviction=swap"
    assert file_name("pkg.mod:Class") == "pkg.mod-Class"


def test_agreement_is_the_ratio_of_simulated_to_real(tmp_path: Path) -> None:
    profile = make_profile()
    run = run_checked(make_load((0, 4, 3)), profile)
    answers = [
        Answer(0.0, 0.0, run.ended_s * 2, 4, ((2 * run.records[0].first_s, 1), (9.0, 2)))
    ]
    save_recording(Recording("load", "service", answers, []), tmp_path / "real.json")
    lines = agreement(summarise(answers), figures(run, profile, SLO(2.0, 0.1))).splitlines()
    ratios = {cells[0]: cells[-1] for cells in map(_cells, lines)}
    assert ratios["TTFT p50, s"] == "0.50"
    assert ratios["output tokens/s"] == "2.00"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| ").split("|")]


def mixed_run(label: str) -> Run:
    """Of two priorities and two tenants."""
    demands = [
        Demand(Arrival(index, 4, 4), priority=8 * (index % 2), tenant="ab"[index // 4])
        for index in range(8)
    ]
    return run_checked(Load("load", demands), make_profile(), Choice(label, label))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that would be written."""
    figures: list[Figure] = []
    monkeypatch.setattr(plots, "_write", lambda figure, path: figures.append(figure))
    return figures


def test_goodput_is_drawn_from_0_to_100_percent(drawn: list[Figure], tmp_path: Path) -> None:
    runs = [mixed_run("fcfs"), mixed_run("priority")]
    for slo in (SLO(ttft_s=0.0, tpot_s=0.0), SLO(ttft_s=1e9, tpot_s=1e9)):
        plots.plot_goodput(runs, slo, None, tmp_path)
    for figure, percent in zip(drawn, (0, 100), strict=True):
        (axis,) = figure.axes
        assert axis.get_ylim() == (0, 100)
        assert {bar.get_height() for bar in axis.patches} == {percent}


def test_a_class_without_deadlines_has_no_bar_of_deadlines_met(
    drawn: list[Figure], tmp_path: Path
) -> None:
    demands = [
        Demand(Arrival(index, 4, 4), priority=priority, deadline_s=1e9 if priority else None)
        for index, priority in enumerate((0, 0, 8, 8))
    ]
    run = run_checked(Load("load", demands), make_profile(), Choice("fcfs", "fcfs"))
    plots.plot_goodput([run], SLO(1e9, 1e9), None, tmp_path)
    in_slo, deadlines = drawn[0].axes
    assert [bar.get_height() for bar in in_slo.patches] == [100, 100]
    assert [bar.get_height() for bar in deadlines.patches] == [100]
    assert deadlines.get_xlim() == in_slo.get_xlim()


def test_no_word_is_said_twice_in_a_legend(drawn: list[Figure], tmp_path: Path) -> None:
    runs = [mixed_run("priority"), mixed_run("fcfs")]
    plots.plot_latencies(runs, SLO(2.0, 0.1), tmp_path)
    (legend,) = drawn[0].legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == [
        *("priority", "fcfs"),
        *("priority 0", "priority 8", "tenant a", "tenant b"),
        "SLO",
    ]
    assert all(axis.get_legend() is None for axis in drawn[0].axes)


def test_priorities_are_sorted_by_size() -> None:
    records = mixed_run("fcfs").records
    names = grouped(records, lambda record: f"priority {record.id % 3 * 5}")
    assert list(names) == ["priority 0", "priority 5", "priority 10"]


@pytest.mark.parametrize("name", names())
def test_a_profile_meets_its_usual_slo_with_a_request_alone(name: str) -> None:
    profile = find_profile(name)
    slo, tokens = usual_slo(profile), profile.max_step_tokens
    first_s = profile.costs.alone_s(tokens, 1)
    assert first_s < slo.ttft_s < 10 * first_s
    assert (profile.costs.alone_s(tokens, 101) - first_s) / 100 < slo.tpot_s


def test_the_default_profile_meets_its_slo_on_the_default_workload() -> None:
    profile = find_profile("cpu")
    load = workload_load("mixed", Repeat(None, None, None), Rules(), profile)
    slo = usual_slo(profile)
    found = figures(simulate(load, profile, Choice("fcfs", "fcfs")), profile, slo)
    assert found.classes[0].good > 0.8


def test_tables_fit_80_columns_and_nothing_is_cut() -> None:
    profile = make_profile(pages=6, host=6)
    label = "package.module:Strategy parts=2.5 eviction=swap max_preemptions=3"
    demands = [
        Demand(Arrival(0, 4, 6), priority=12 * (n % 2), tenant=f"team-research-{n}-evaluation")
        for n in range(3)
    ]
    run = run_checked(Load("load", demands), profile, Choice(label, "fcfs"))
    huge = Spread(1234.567, 12345.678, 123456.789)
    found = figures(run, profile, SLO(2.0, 0.1))
    found = replace(
        found,
        evictions={"recompute pages": 123, "swap priority": 12345},
        preemptions=12468,
        swapped_tokens=123456789,
        recomputed_tokens=123456789,
        classes=[replace(one, ttft_s=huge, latency_s=huge) for one in found.classes],
    )
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        for table in tables([found, found], SLO(2.0, 0.1)):
            console.print(table)
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    text = " ".join(captured.get().split())
    for shown in ("123 recompute pages", "12345 swap priority", "1235 / 12346 / 123457"):
        assert shown in text
    for shown in ("team-research-2-evaluation", "first token within 2 s, then 100 ms a token"):
        assert shown in text
