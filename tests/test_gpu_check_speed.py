"""The GPU check's speed half at small sizes over emulated kernels: that it runs, since a GPU's
minutes are no place to find a typo. What it measures here means nothing."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from flashinfer import decode

from bench.gpu import (
    attention_speed,
    bare,
    copy_speed,
    mixed_step,
    plan_cost,
    sampling_speed,
    throughput,
)
from bench.gpu.findings import Findings
from bench.gpu.made import small_shape
from bench.gpu.place import Place, cpu_place
from bench.gpu.steps import RowShape

FREE_BYTES = 2**36


class Event:
    """A device's clock where the host computes."""

    def __init__(self, device: str, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at_s = time.perf_counter()

    def elapsed_time(self, end: "Event") -> float:
        return (end.at_s - self.at_s) * 1e3


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    cache = SimpleNamespace(L2_cache_size=2**14)
    monkeypatch.setattr(torch, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: cache)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (FREE_BYTES, FREE_BYTES))
    monkeypatch.setattr(copy_speed, "CEILING_BYTES", 2**16)
    with cpu_place(quick=False, model=None) as place:
        yield place


def figures(found: Findings) -> list[str]:
    assert all(figure.value > 0 for figure in found.figures)
    assert not found.faults and not found.notes
    return [figure.name for figure in found.figures]


def test_copies_are_measured(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_speed, "MOST_PAGES", 3)
    found = Findings()
    copy_speed.check(place, found)
    names = figures(found)
    assert len(names) == 1 + 2 * 2 * 2
    assert "8B, pages in, page by page" in names


def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_speed, "POINTS", ((1, 16), (2, 32)))
    monkeypatch.setattr(attention_speed, "GATED", (2, 32))
    monkeypatch.setattr(attention_speed, "HEADS", {"default model": (9, 3, 64)})
    monkeypatch.setattr(attention_speed, "DECODES", [RowShape(20)] * 8)
    monkeypatch.setattr(attention_speed, "CHUNK", RowShape(20, 9))
    monkeypatch.setattr(attention_speed, "WHOLE", (3, 2, 40))


def test_attention_is_measured(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    small_steps(monkeypatch)
    found = Findings()
    attention_speed.check(place, found)
    names = figures(found)
    assert "default model, batch 2, context 32, of the ceiling" in names
    assert "default model, mixed step, split" in names
    assert names[-1] == "default model, 3 layers, batch 2, context 40"


def test_what_does_not_fit_the_device_is_noted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (0, 0))
    small_steps(monkeypatch)
    monkeypatch.setattr(attention_speed, "_mixed", lambda *_: None)
    attention, models = Findings(), Findings()
    attention_speed.check(place, attention)
    throughput.check(place, models)
    assert attention.notes == [
        "default model, batch 1, context 16: not enough device memory",
        "default model, batch 2, context 32: not enough device memory",
        "default model, 3 layers, batch 2, context 40: not enough device memory",
    ]
    assert [note.split(":")[0] for note in models.notes] == ["default shape", "8B shape"]


def test_sampling_is_measured_in_every_way(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling_speed, "VOCAB", 1003)
    monkeypatch.setattr(sampling_speed, "BATCHES", (1, 3))
    monkeypatch.setattr(sampling_speed, "ROUNDS", 2)
    found = Findings()
    sampling_speed.check(place, found)
    names = figures(found)
    assert len(names) == 2 * 2 * len(sampling_speed.WAYS)
    assert {"top-p, batch 3: host", "penalties, batch 3: device"} <= set(names)


def test_a_mixed_step_is_measured_end_to_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixed_step, "SHAPES", {"small shape": small_shape()})
    monkeypatch.setattr(mixed_step, "DECODES", 3)
    monkeypatch.setattr(mixed_step, "CONTEXT", 40)
    monkeypatch.setattr(mixed_step, "CHUNK", 20)
    monkeypatch.setattr(mixed_step, "ROUNDS", 2)
    found = Findings()
    mixed_step.check(place, found)
    names = figures(found)
    assert "small shape, 3 decode rows and a chunk of 20" in names
    assert "small shape, 3 decode rows, graph: starting" in names
    assert found.checks == 4


def test_planning_is_measured(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cost, "POINTS", ((1, 16), (8, 32)))
    monkeypatch.setattr(plan_cost, "MIXED", [RowShape(16)] * 8 + [RowShape(20, 9)])
    monkeypatch.setattr(plan_cost, "ROUNDS", 2)
    found = Findings()
    plan_cost.check(place, found)
    assert len(figures(found)) == 2 * 2 + 1


def test_what_is_not_served_with_is_measured_too(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda_cores = SimpleNamespace(plan=lambda *_: [0], run=lambda *_: None)
    monkeypatch.setattr(decode, "get_batch_decode_module", lambda *_: cuda_cores)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(bare, "ROWS", 3)
    monkeypatch.setattr(bare, "CONTEXT", 40)
    monkeypatch.setattr(bare, "ROUNDS", 2)
    monkeypatch.setattr(bare, "WORKSPACE_BYTES", 2**16)
    found = Findings()
    bare.check(place, found)
    assert figures(found) == [
        "decode on tensor cores", "decode on CUDA cores", "plan of a graph",
        "short plan of a graph",
    ]  # fmt: skip


def test_the_engine_is_measured_in_every_way(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throughput, "SHAPES", {"small shape": small_shape()})
    monkeypatch.setattr(throughput, "BATCHES", (1, 2))
    monkeypatch.setattr(throughput, "OUTPUT", {1: 5, 2: 5})
    monkeypatch.setattr(throughput, "PROMPT", 9)
    monkeypatch.setattr(throughput, "STEP_TOKENS", 64)
    found = Findings()
    throughput.check(place, found)
    assert "small shape, graphs on, 1 in flight, batch 2: host" in figures(found)
    assert len(found.details) == 2 * 2 * 2
    assert all("host: planning" in split for split in found.details.values())
