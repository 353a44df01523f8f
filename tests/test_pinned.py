"""Exact pinned memory, where there is no GPU to pin it for."""

from dataclasses import dataclass, field

import pytest
import torch

from memory.attention.pinned import pinned_zeros
from models.device_start import room_on_device
from models.errors import ModelError
from models.trial import StepSize

OUT_OF_MEMORY = 2
DEVICE = torch.device("cuda")


@dataclass
class Runtime:
    """The part of CUDA's that pins memory."""

    answer: int = 0
    held: dict[int, int] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)

    def cudaHostRegister(self, address: int, size_bytes: int, flags: int) -> int:  # noqa: N802
        if not self.answer:
            self.held[address] = size_bytes
        return self.answer

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        del self.held[address]
        self.events.append("unpinned")
        return 0


def check(answer: int) -> None:
    if answer:
        error = torch.cuda.CudaError.__new__(torch.cuda.CudaError)
        error.args = (f"out of memory ({answer})",)
        raise error


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(torch.cuda, "check_error", check)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: runtime.events.append("waited"))
    return runtime


def test_as_many_bytes_are_pinned_as_were_asked_for(runtime: Runtime) -> None:
    memory = pinned_zeros((5, 3, 7), torch.bfloat16, DEVICE)
    assert runtime.held == {memory.data_ptr(): 5 * 3 * 7 * 2}
    assert memory.shape == (5, 3, 7) and not memory.any()


def test_memory_is_unpinned_when_it_goes_and_its_copies_are_done(runtime: Runtime) -> None:
    memory = pinned_zeros((64,), torch.float32, DEVICE)
    memory[3:9].fill_(1)  # a view goes without it
    assert runtime.held
    del memory
    assert not runtime.held and runtime.events == ["waited", "unpinned"]


def test_memory_that_cannot_be_pinned_ends_a_start_in_one_line(runtime: Runtime) -> None:
    runtime.answer = OUT_OF_MEMORY
    with (
        pytest.raises(ModelError, match=r"or the pools do not fit .*out of memory \(2\)$"),
        room_on_device(StepSize(1, 1)),
    ):
        pinned_zeros((64,), torch.float32, DEVICE)
