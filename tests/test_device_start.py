"""From weights to a runner on a device: graphs, the trial step, and what is left for pages."""

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch

from memory.attention.interface import StepMeta
from models import device_sampling
from models.batch import Row, StepBatch
from models.device_draws import Filters, drawn
from models.device_start import Demands, Machine, room_on_device, start_on_device
from models.errors import ModelError
from models.graphs import Work
from models.pools import PoolWish, cpu_pages, gpu_pages
from models.shard import LONE, Lone, Shard
from models.trial import StepSize, run_trial
from tests.device_models import PAGE_SIZE, PaddedReference, Request, Rerun, Tiny, run, spec_of
from tests.tiny_models import saved, tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return Tiny.of(saved(tiny_model("llama"), tmp_path_factory.mktemp("llama")))


def demands(**wish: object) -> Demands:
    return Demands(PoolWish(**wish), StepSize(4, 30), context_tokens=256)


def test_the_pool_is_sized_from_what_is_free_beside_graphs_and_the_largest_step(
    tiny: Tiny,
) -> None:
    attention = PaddedReference(spec_of(tiny.config))
    page_bytes, seen, captured = attention.spec.page_bytes, [], []

    def free_bytes() -> int:
        seen.append(attention._pool.shape[0])
        meta = attention._slots
        seen.append(len(meta))
        seen.append(len(captured))
        return 10 * page_bytes + 9

    capture = Rerun()

    def capturing(work: Work) -> Work:
        captured.append(len(attention._pool))
        return capture(work)

    machine = Machine(free_bytes, capturing)
    model = tiny.model(attention)
    started = start_on_device(model, attention, demands(device_fraction=0.8), machine, LONE)
    # Asked once, with a pool of the scratch page, after the graphs and then the trial.
    assert seen == [1, 30, 3]
    assert captured == [1] * 3 + [8] * 3
    assert (started.num_pages, started.host_pages) == (8, 0)
    assert attention._pool.shape[0] == 8
    request = Request(1, [9, 4, 8, 7, 5, 3, 2], [1, 2, 3])
    run(started.runner, [request], steps=4)
    assert capture.replays == 3
    alone = Request(1, [9, 4, 8, 7, 5, 3, 2], [1, 2, 3])
    run(tiny.on_host(), [alone], steps=4)
    assert request.output == alone.output


@pytest.mark.parametrize("pool", [1, 9])
def test_a_capture_that_fails_ends_the_start_with_the_settings_in_one_line(
    tiny: Tiny, pool: int
) -> None:
    attention = PaddedReference(spec_of(tiny.config))

    def capture(work: Work) -> Work:
        if len(attention._pool) == pool:
            raise RuntimeError("cudaErrorMemoryAllocation\nat 0x7f")
        return Rerun()(work)

    machine, model = Machine(lambda: 2**30, capture), tiny.model(attention)
    with pytest.raises(ModelError, match=r": cudaErrorMemoryAllocation$") as caught:
        start_on_device(model, attention, demands(num_pages=9), machine, LONE)
    for setting in ("engine.cuda_graphs", "memory.device_fraction"):
        assert setting in str(caught.value)


class NoKernel(RuntimeError):
    """FlashInfer's, where compiling is forbidden."""

    spec = SimpleNamespace(name="batch_prefill_d64")


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            NoKernel("it is not in the cache\nat all"),
            "batch_prefill_d64: it is not in the cache",
        ),
        (FileNotFoundError(2, "No such file", "ninja"), "[Errno 2] No such file: 'ninja'"),
        (
            RuntimeError("Ninja build failed.\n[1/2] nvcc\nFAILED: d64.o \nerror: x\n"),
            "Ninja build failed.: FAILED: d64.o ",
        ),
    ],
    ids=["forbidden", "no ninja", "nvcc failed"],
)
def test_a_kernel_that_cannot_be_had_is_told_as_that_and_not_as_a_lack_of_memory(
    tiny: Tiny, graphs: bool, error: Exception, said: str
) -> None:
    class Unbuilt(PaddedReference):
        def plan(self, meta: StepMeta) -> None:
            raise error

    attention = Unbuilt(spec_of(tiny.config))
    machine = Machine(lambda: 2**30, Rerun() if graphs else None)
    with pytest.raises(ModelError, match="`walkway doctor`") as caught:
        start_on_device(tiny.model(attention), attention, demands(), machine, LONE)
    assert str(caught.value).endswith(f"compilers): {said}")
    assert "memory" not in str(caught.value)


class Follower(Lone):
    """The seat of a rank that others tell what to do."""

    shard = Shard(1, 2)


def test_no_rank_of_several_captures_graphs(tiny: Tiny) -> None:
    """One that did would add up with nobody."""
    attention = PaddedReference(spec_of(tiny.config))
    machine = Machine(lambda: 2**30, lambda work: pytest.fail("captured"))
    model = tiny.model(attention)
    start_on_device(model, attention, demands(num_pages=9), machine, Follower())


def test_without_graphs_nothing_is_captured(tiny: Tiny) -> None:
    attention = PaddedReference(spec_of(tiny.config))
    machine = Machine(lambda: 2**30, None)
    wish = demands(num_pages=9, host_bytes=attention.spec.page_bytes * 3)
    started = start_on_device(tiny.model(attention), attention, wish, machine, LONE)
    assert (started.num_pages, started.host_pages) == (9, 3)
    assert started.runner._graphs is None


class Watcher:
    def __init__(self) -> None:
        self.steps: list[Sequence[Row]] = []

    def step(self, batch: StepBatch) -> None:
        self.steps.append(batch.rows)


def test_the_trial_has_as_many_tokens_as_a_step_can() -> None:
    watcher = Watcher()
    run_trial(watcher, StepSize(rows=7, tokens=100), page_size=16, context_tokens=8)
    for rows in watcher.steps:
        assert [len(row.tokens) for row in rows] == [8] * 7
    watcher = Watcher()
    run_trial(watcher, StepSize(rows=7, tokens=100), page_size=16, context_tokens=64)
    for rows in watcher.steps:
        assert sum(len(row.tokens) for row in rows) == 100
        assert len(rows) == 7 and {p for row in rows for p in row.pages} == {0}


def test_the_trial_sorts_the_vocabulary_for_all_rows_and_selects_for_all_rows(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both at once would be measured for half of the rows each."""
    seen: list[tuple[int, int | None, bool]] = []

    def watched(logits: torch.Tensor, peak: torch.Tensor, f: Filters) -> torch.Tensor:
        seen.append((len(logits), f.widest, f.top_p is not None))
        return drawn(logits, peak, f)

    monkeypatch.setattr(device_sampling, "drawn", watched)
    run_trial(tiny.on_device(), StepSize(4, 30), PAGE_SIZE, context_tokens=256)
    assert seen == [(4, 50, True), (4, None, True)]


def test_a_pool_is_what_was_asked_for_or_a_share_of_what_is_free() -> None:
    assert gpu_pages(PoolWish(), 100, 10_050, 0) == (90, 0)
    assert gpu_pages(PoolWish(num_pages=100), 100, 10_050, 0) == (100, 0)
    assert gpu_pages(PoolWish(pool_bytes=950, host_bytes=250), 100, 10_050, 250) == (9, 2)
    assert cpu_pages(PoolWish(), 2**20, 2**40) == (2048, 0)
    assert cpu_pages(PoolWish(), 2**19, 2**40, ranks=2) == (2048, 0)


@pytest.mark.parametrize(
    ("wish", "free", "said"),
    [
        (PoolWish(), 211, "189 B .*0.9 of 211 B free.* 1 pages of 100 B; at least 2"),
        (PoolWish(pool_bytes=199), 10**6, "199 B holds 1 pages of 100 B"),
        (PoolWish(num_pages=11), 1099, "11 pages in the pool need 1100 B, and 1099 B of GPU"),
        (PoolWish(pool_bytes=1200), 1199, "12 pages in the pool need 1200 B, and 1199 B"),
        (PoolWish(host_bytes=900), 10**6, "9 pages on the host need 900 B, and 800 B"),
    ],
)
def test_a_pool_that_does_not_fit_is_refused_with_the_numbers(
    wish: PoolWish, free: int, said: str
) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        gpu_pages(wish, 100, free, 800)
    assert "\n" not in str(caught.value)


def test_a_device_that_says_nothing_is_told_by_the_kind_of_its_error() -> None:
    silent = pytest.raises(ModelError, match=r"or it failed: OutOfMemoryError$")
    with silent, room_on_device(StepSize(4, 30)):
        raise torch.OutOfMemoryError("")
