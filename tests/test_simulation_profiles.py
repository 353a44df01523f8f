"""Profiles: shipped, modelled, measured."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.simulation.catalogue import find_profile, names
from bench.simulation.costs import StepModel, Work
from bench.simulation.fit import fit
from bench.simulation.probes import Room, Timing, measure, probes
from bench.simulation.profile import BadProfile
from bench.simulation.profile import read as read_profile
from bench.simulation.profile import save as save_profile
from models.toy import ToyRunner
from tests.simulations import (
    COSTS,
)


@pytest.mark.parametrize("name", names())
def test_a_profile_survives_its_file(tmp_path: Path, name: str) -> None:
    profile = find_profile(name)
    save_profile(profile, tmp_path / "saved.json")
    assert find_profile(str(tmp_path / "saved.json")) == profile
    assert profile.name == name
    assert (profile.source == "modelled") == (name != "cpu")


def test_an_unknown_profile_and_a_bad_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadProfile, match=r"no profile 'gpu'; there are cpu, h100-8b"):
        find_profile("gpu")
    path = tmp_path / "bad.json"
    path.write_text('{"name": "x"}')
    with pytest.raises(BadProfile, match=r"bad\.json.*missing"):
        read_profile(path)
    with pytest.raises(BadProfile, match="No such file"):
        find_profile(str(tmp_path / "absent.json"))


def test_roofline_profiles_are_the_published_figures() -> None:
    one, four = find_profile("h100-8b"), find_profile("h200x4-70b")
    decode_s = one.costs.seconds(Work(rows=1, context_tokens=1000))
    assert decode_s == pytest.approx(2e-3 + 16.06e9 / 2.68e12 + 1000 * 131072 / 2.68e12)
    prefill_s = one.costs.seconds(Work(prefill_tokens=2048))
    assert prefill_s == pytest.approx(5.2e-3 + 2048 * 16.06e9 / 494.5e12)
    pool_bytes = one.device_pages * 16 * 131072
    assert pool_bytes == pytest.approx(72e9 - 3 * 2**30 - 16.06e9, abs=2**21)
    assert four.costs.weights_s == pytest.approx(141.2e9 / (4 * 3.84e12))
    assert four.device_pages > 2 * find_profile("h100x4-70b").device_pages


@pytest.mark.parametrize("weights_s", [0.0, 4.0])
def test_a_fit_finds_the_costs_that_made_the_timings(weights_s: float) -> None:
    costs = replace(COSTS, weights_s=weights_s)
    room = Room(4096, 256, 10**5, 1000, 16, 8192, 100)
    works = [timing.work for timing in measure(_Still(), room, repeats=1)]
    found = fit([Timing(work, costs.seconds(work)) for work in works])
    assert vars_of(found) == pytest.approx(vars_of(costs))


def test_a_fit_has_no_cost_below_zero() -> None:
    timings = [Timing(Work(rows=rows), 1.0 - rows / 100) for rows in (1, 8, 32)]
    assert min(vars_of(fit(timings)).values()) == 0.0


class _Still:
    def step(self, batch: object) -> None:
        """Takes no time."""


def vars_of(model: StepModel) -> dict[str, float]:
    return {name: getattr(model, name) for name in StepModel.__slots__}


def test_probes_write_pages_of_their_own_and_read_none_unwritten() -> None:
    room = Room(512, 32, 400, 20, 16, 8192, 100)
    measure(ToyRunner(401, 16, 20), room, repeats=1)  # which raises where it reads unwritten
    for batch in probes(room):
        held = [page for row in batch.rows for page in row.pages]
        assert len(held) == len(set(held)) and 0 not in held
        assert all(page <= 400 for page in held)
