"""What a simulated run comes to."""

from itertools import pairwise
from pathlib import Path

import pytest

from bench.recording import Recording
from bench.recording import save as save_recording
from bench.samples import Answer, summarise
from bench.simulation.agreement import agreement
from bench.simulation.demand import Demand, Load
from bench.simulation.figures import SLO, figures
from bench.simulation.output import Simulated, file_name, read, save
from bench.simulation.run import MOST_GAUGES, Gauges, Waste
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
        "priority  0",
        "priority  8",
        "tenant a",
        "tenant b",
    ]
    everybody, urgent = found.classes[0], found.classes[2]
    assert everybody.ended == {"length": 2, "expired": 1}
    assert everybody.deadlines_met == 0.5 and urgent.deadlines_met == 0.0
    assert everybody.good == pytest.approx(1 / 3)  # two prefills at once take 3.02 s
    assert found.goodput_per_s == pytest.approx(1 / run.ended_s)
    simulated = Simulated("load", profile, SLO(), [found])
    save(simulated, tmp_path / "simulation.json")
    assert read(tmp_path / "simulation.json") == simulated


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
    lines = agreement(summarise(answers), figures(run, profile, SLO())).splitlines()
    ratios = {cells[0]: cells[-1] for cells in map(_cells, lines)}
    assert ratios["TTFT p50, s"] == "0.50"
    assert ratios["output tokens/s"] == "2.00"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| ").split("|")]
