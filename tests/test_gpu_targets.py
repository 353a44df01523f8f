"""Which GPUs a compiled library runs on."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from memory.attention.choose import BackendUnavailable, refuse_kernels_of_others
from memory.attention.gpu_targets import (
    FAMILY,
    PTX,
    SPECIFIC,
    Target,
    library_targets,
    read_targets,
    run_on,
    spelled,
)
from memory.attention.interface import KVSpec
from tests.gpu_libraries import KERNEL, compiled


@pytest.mark.parametrize(
    ("target", "capabilities"),
    [
        (Target(8, 0), {(8, 0), (8, 6), (8, 9)}),
        (Target(8, 9), {(8, 9)}),
        (Target(9, 0, "a"), {(9, 0)}),
        (Target(10, 0, "a"), {(10, 0)}),
        (Target(10, 0, "f"), {(10, 0), (10, 3)}),
        (Target(12, 0, "f"), {(12, 0), (12, 1)}),
        (Target(9, 0, ptx=True), {(9, 0), (10, 0), (10, 3), (12, 0), (12, 1)}),
        (Target(9, 0, "a", ptx=True), {(9, 0)}),
    ],
)
def test_code_runs_on_the_gpus_that_cuda_says(
    target: Target, capabilities: set[tuple[int, int]]
) -> None:
    there = {(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)}
    assert {one for one in there if target.runs_on(one)} == capabilities


def test_targets_are_read_from_a_library(tmp_path: Path) -> None:
    library = tmp_path / "prefill.so"
    library.write_bytes(
        compiled((KERNEL, 80, 0x11), (KERNEL, 90, SPECIFIC | 0x11), (PTX, 90, 0x8011))
        + compiled((KERNEL, 120, FAMILY))
    )
    found = library_targets(library)
    assert spelled(found) == "8.0, 9.0+PTX, 9.0a, 12.0f"
    assert run_on(found, (12, 1)) and run_on(found, (10, 0))


@pytest.mark.parametrize("content", [b"", b"\x7fELF", compiled()[:120]])
def test_a_library_without_kernels_is_for_every_gpu(tmp_path: Path, content: bytes) -> None:
    library = tmp_path / "rope.so"
    library.write_bytes(content)
    assert library_targets(library) == frozenset()
    assert run_on(library_targets(library), (12, 0))


def test_a_list_is_completed_as_flashinfer_does() -> None:
    assert spelled(read_targets("8.0 9.0 10.0 12.0 12.1")) == "8.0, 9.0a, 10.0a, 12.0f, 12.1a"
    assert spelled(read_targets("9.0a 12.0a")) == "9.0a, 12.0a"
    assert read_targets("") == read_targets("native") == frozenset()


def test_kernels_for_another_gpu_refuse_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "prefill.so"
    library.write_bytes(compiled((KERNEL, 90, SPECIFIC)))
    modules = [SimpleNamespace(name="rope", library=None)]
    modules.append(SimpleNamespace(name="prefill", library=library))
    pretended = SimpleNamespace(modules=lambda spec: modules)  # importing FlashInfer is slow
    monkeypatch.setitem(sys.modules, "memory.attention.flashinfer_kernels", pretended)
    spec = KVSpec(2, 4, 2, 64, 16, torch.bfloat16, "cuda")
    backend = SimpleNamespace(name="flashinfer", spec=spec)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (10, 0))
    with pytest.raises(BackendUnavailable) as raised:
        refuse_kernels_of_others(backend)
    assert "kernels compiled for 9.0a, and the GPU has 10.0: prefill" in str(raised.value)
    refuse_kernels_of_others(SimpleNamespace(name="reference", spec=spec))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    refuse_kernels_of_others(backend)
