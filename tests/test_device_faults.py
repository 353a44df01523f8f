"""What a step that fails says about the device it ran on."""

import pytest
import torch

from models import device_runner
from models.batch import StepBatch
from models.device_faults import device_faults
from models.device_start import room_on_device
from models.errors import DeviceLost, ModelError
from models.marks import Mark
from models.trial import StepSize
from tests.device_models import Request, Tiny
from tests.tiny_models import saved, tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return Tiny.of(saved(tiny_model("llama"), tmp_path_factory.mktemp("llama")))


@pytest.mark.parametrize("error", [torch.AcceleratorError, torch.OutOfMemoryError])
def test_an_error_of_the_device_is_more_than_a_failed_step(
    tiny: Tiny, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error("CUDA error: unspecified\nand advice")

    runner = tiny.on_device()
    monkeypatch.setattr(runner._model, "logits", fails)
    with pytest.raises(DeviceLost, match=r"^\w+Error: CUDA error: unspecified$"):
        runner.step(StepBatch([Request(1, [3], [1]).row()]))
    with (
        pytest.raises(ModelError, match="512 tokens and 32 rows") as caught,
        room_on_device(StepSize(32, 512)),
    ):
        runner.step(StepBatch([Request(1, [3], [1]).row()]))
    assert "\n" not in str(caught.value)


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that failed in something, whoever asks it."""

    def fails(device: torch.device) -> None:
        raise torch.AcceleratorError("CUDA error: an illegal address\nand advice")

    monkeypatch.setattr(torch.cuda, "synchronize", fails)


@pytest.mark.usefixtures("lost")
@pytest.mark.parametrize("first", [RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED"), ValueError])
def test_a_library_that_sees_a_lost_device_first_does_not_hide_it(first: Exception) -> None:
    with (
        pytest.raises(DeviceLost, match=r"^AcceleratorError: CUDA error: an illegal address$"),
        device_faults(torch.device("cuda")),
    ):
        raise first


@pytest.mark.usefixtures("lost")
def test_a_device_that_is_lost_while_a_step_starts_or_lands_is_lost(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library's error, while the runner is made to believe that its device is a GPU."""

    def fails(*_: object) -> None:
        raise RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED")

    batch = StepBatch([Request(1, [3], [1]).row()])
    starts, lands = tiny.on_device(), tiny.on_device()
    landing = lands.start(batch)
    monkeypatch.setattr(starts._attention, "plan", fails)
    monkeypatch.setattr(Mark, "wait", fails)
    for runner in (starts, lands):
        runner._device = torch.device("cuda")
    monkeypatch.setattr(Mark, "__init__", lambda *_: None)
    monkeypatch.setattr(device_runner, "moved", lambda inputs, *_: inputs)
    for act in (lambda: starts.start(batch), landing):
        with pytest.raises(DeviceLost, match="illegal address"):
            act()


def test_an_error_on_a_device_that_works_fails_the_step_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    for device in ("cuda", "cpu"):
        with pytest.raises(ValueError, match="leaves the pool"):  # noqa: SIM117
            with device_faults(torch.device(device)):
                raise ValueError("a page table leaves the pool")
