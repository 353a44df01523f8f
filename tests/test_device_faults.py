"""What a step that fails says about the device it ran on."""

import os
from collections.abc import Callable

import pytest
import torch
from structlog.testing import capture_logs

from models import device_runner
from models.batch import Sampling, StepBatch
from models.device_faults import device_faults
from models.device_start import room_on_device
from models.errors import DeviceLost, ModelError
from models.marks import Mark
from models.trial import StepSize
from service.engine_process import grow_segments
from service.flights import Flights
from tests.cores import make_core, make_submit
from tests.device_models import Request, Rerun, Tiny, run
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


class Short:
    """Does what it stands for, but in the calls of these numbers memory runs out behind it."""

    def __init__(self, inner: Callable[..., object], *failing: int) -> None:
        self._inner, self._failing = inner, failing
        self.calls = 0

    def __call__(self, *arguments: object) -> object:
        self.calls += 1
        found = self._inner(*arguments)
        if self.calls in self._failing:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return found


PENALISED = Sampling(
    temperature=1.0, seed=3, frequency_penalty=3.0, repetition_penalty=1.3, prompt_logprobs=1
)


@pytest.mark.parametrize("ahead", [1, 2])
@pytest.mark.parametrize("where", ["_hidden", "_replayed", "_drawn", "_scores"])
def test_a_step_that_runs_out_of_memory_once_is_computed_again(
    tiny: Tiny, where: str, ahead: int
) -> None:
    """To the bit as one that did not, penalties and tokens in flight included."""
    found = []
    for failing in ((), (1, 5)):
        runner = tiny.on_device(Rerun() if where == "_replayed" else None)
        short = Short(getattr(runner, where), *failing)
        setattr(runner, where, short)
        requests = [
            Request(id, [3, 4, 5, id], [id, 7 + id], PENALISED, chunk=2) for id in (1, 2)
        ]
        run(runner, requests, 5, ahead)
        assert short.calls > bool(failing)
        found.append([request.results for request in requests])
    assert found[0] == found[1]
    assert all(result.error is None for results in found[0] for result in results)


def test_the_log_says_that_a_step_was_computed_again(tiny: Tiny) -> None:
    runner, core = tiny.on_device(), make_core(pages=20, page_size=4)
    setattr(runner, "_hidden", Short(runner._hidden, 1))  # noqa: B010
    core.submit(make_submit(1, max_tokens=2))
    flights = Flights(core, runner, lambda: 0.0)
    with capture_logs() as lines:
        while (step := core.begin(0.0)) is not None:
            flights.start(step, 0.0)
            flights.land(all_of_them=True)
    assert [(line["event"], line["why"]) for line in lines] == [
        ("step_computed_again", "CUDA out of memory.")
    ]


def test_pages_are_copied_once_though_the_step_is_computed_twice(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, copies = tiny.on_device(), []
    monkeypatch.setattr(runner, "_copy", lambda batch: copies.append(batch.swap_out))
    monkeypatch.setattr(runner, "_hidden", Short(runner._hidden, 1))
    runner.step(StepBatch([Request(1, [3], [1]).row()], swap_out=[(2, 0)]))
    assert copies == [[(2, 0)]]


def test_memory_that_runs_out_again_or_beside_other_ranks_is_the_end(tiny: Tiny) -> None:
    for failing, alone in (((1, 2), True), ((1,), False)):
        runner = tiny.on_device()
        runner._alone = alone
        runner._hidden = Short(runner._hidden, *failing)
        with pytest.raises(DeviceLost, match=r"CUDA out of memory"):
            runner.step(StepBatch([Request(1, [3], [1]).row()]))


def test_the_engine_s_process_lets_the_pool_of_a_gpu_grow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    grow_segments()
    assert os.environ.pop("PYTORCH_ALLOC_CONF") == "expandable_segments:True"
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")
    grow_segments()
    assert "PYTORCH_ALLOC_CONF" not in os.environ


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
