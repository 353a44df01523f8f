"""The device runner on a CPU: the tokens are those of the host's runner, whether a step is
computed by itself, replayed from a padded graph, or started before the last one landed."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.attention.choose import BackendUnavailable, choose
from memory.attention.interface import KVSpec
from memory.attention.reference import ReferenceAttention
from models import device_runner, device_sampling, devices
from models.batch import IN_FLIGHT, AheadRunner, RequestId, Row, Sampling, StepBatch
from models.device_inputs import moved
from models.device_previous import Previous
from models.device_runner import DeviceRunner
from models.device_weights import OnDevice
from models.devices import choose_device, choose_dtype
from models.errors import ModelError
from models.graphs import DecodeGraphs
from models.load import LoadOptions, bring_up, load
from models.random_weights import LLAMA_8B, SMOLLM2_135M, RandomWeights
from models.step_inputs import step_inputs
from service.build import build
from service.settings import Settings
from tests.device_models import (
    Request,
    Rerun,
    Tiny,
    run,
    spec_of,
)
from tests.tiny_models import saved, tiny_model

EVERYTHING = Sampling(
    temperature=0.9,
    top_k=40,
    top_p=0.95,
    min_p=0.01,
    repetition_penalty=1.3,
    frequency_penalty=0.4,
    presence_penalty=0.2,
    seed=11,
    logit_bias=((5, 2.0),),
    min_tokens=3,
    stop_ids=(1, 7),
    logprobs=3,
)
WAYS = [Sampling(), Sampling(logprobs=2), EVERYTHING, Sampling(temperature=1.0, seed=3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tiny_model("llama"), tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def tiny(folder: Path) -> Tiny:
    return Tiny.of(folder)


def prompt(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, 96, (length,), generator=generator).tolist()


def crowd(ways: list[Sampling] = WAYS, chunk: int = 7) -> list[Request]:
    """Requests of all lengths: while the first decode, the last still prefill."""
    return [
        Request(i, prompt(1 + 9 * i, i), list(range(1 + 15 * i, 16 + 15 * i)), way, chunk)
        for i, way in enumerate(ways)
    ]


def outputs(requests: list[Request]) -> list[list[int]]:
    return [request.output for request in requests]


def logprobs(requests: list[Request]) -> list[float]:
    """Every log-probability that was reported, prompts' included."""
    return [
        value
        for request in requests
        for result in request.results
        for entry in (*result.prompt_logprobs, *result.logprobs)
        for value in (entry.logprob, *(v for _, v in entry.top))
    ]


def test_mixed_steps_give_the_tokens_of_the_hosts_runner(tiny: Tiny) -> None:
    expected, found = crowd(), crowd()
    run(tiny.on_host(), expected, steps=10)
    run(tiny.on_device(), found, steps=10)
    assert outputs(found) == outputs(expected)
    assert len(found[0].output) == 10 and len(found[3].output) == 7
    assert logprobs(found) == pytest.approx(logprobs(expected), abs=1e-4)


def test_replayed_steps_give_the_tokens_of_computed_ones(tiny: Tiny) -> None:
    """Three rows in a graph of four: the padding must reach neither pages nor results."""
    expected, found, capture = crowd(WAYS[:3]), crowd(WAYS[:3]), Rerun()
    plain, graphed = tiny.on_device(), tiny.on_device(capture)
    run(plain, expected, steps=12)
    run(graphed, found, steps=12)
    assert capture.replays == 12 - 3  # 19 tokens are three chunks, the last of which decodes
    assert outputs(found) == outputs(expected)
    assert logprobs(found) == pytest.approx(logprobs(expected), abs=1e-4)
    pools = [runner._attention._pool[1:] for runner in (plain, graphed)]
    assert torch.allclose(*pools, atol=1e-4)


def test_steps_larger_than_the_largest_graph_are_computed(tiny: Tiny) -> None:
    capture = Rerun()
    nine = [Request(i, prompt(3, i), [1 + 6 * i, 2 + 6 * i, 3 + 6 * i]) for i in range(9)]
    alone = [dataclasses.replace(r, output=[], results=[]) for r in nine]
    run(tiny.on_device(capture), nine, steps=5)
    assert capture.replays == 0
    run(tiny.on_host(), alone, steps=5)
    assert outputs(nine) == outputs(alone)


def test_a_graph_is_for_no_more_rows_than_a_step_can_have(tiny: Tiny) -> None:
    attention = tiny.attention()
    model = tiny.model(attention)
    assert DecodeGraphs(model, attention, 3).sizes == (1, 2, 4)
    assert DecodeGraphs(model, attention, 4).sizes == (1, 2, 4)
    assert DecodeGraphs(model, attention, 100).sizes == (1, 2, 4, 8)
    graphs = DecodeGraphs(model, attention, 8)
    assert [graphs.size(n) for n in (1, 2, 3, 8, 9)] == [1, 2, 4, 8, None]


@pytest.mark.parametrize("graphed", [False, True])
def test_steps_in_flight_give_the_tokens_of_one_at_a_time(tiny: Tiny, graphed: bool) -> None:
    def runner() -> DeviceRunner:
        return tiny.on_device(Rerun() if graphed else None)

    expected, found, on_host = crowd(), crowd(), crowd()
    run(runner(), expected, steps=10)
    run(runner(), found, steps=10, ahead=2)
    run(tiny.on_host(), on_host, steps=10, ahead=2)
    assert outputs(found) == outputs(expected) == outputs(on_host)
    assert logprobs(found) == pytest.approx(logprobs(expected), abs=1e-4)


def test_a_batch_is_read_before_its_step_is_started(tiny: Tiny) -> None:
    runner, expected = tiny.on_device(), Request(0, prompt(9, 0), [1, 2, 3], EVERYTHING)
    run(tiny.on_device(), [expected], steps=1)
    row = Request(0, prompt(9, 0), [1, 2, 3], EVERYTHING).row()
    row.output = []
    landing = runner.start(StepBatch([row]))
    row.tokens[:] = [2] * 9
    row.prompt[:] = [2] * 9
    row.pages[:] = [60] * 3
    row.output.append(4)
    assert list(landing().rows[RequestId(0)].tokens) == expected.output


def test_prompt_logprobs_are_those_of_the_hosts_runner(tiny: Tiny) -> None:
    def asked() -> list[Request]:
        scored = Sampling(prompt_logprobs=3)
        long = Request(0, prompt(40, 0), list(range(1, 13)), scored, chunk=39)
        one = Request(1, prompt(1, 1), [14, 15], scored)
        return [long, one, Request(2, prompt(5, 2), [16, 17, 18])]

    expected, found = asked(), asked()
    run(tiny.on_host(), expected, steps=3)
    run(tiny.on_device(Rerun()), found, steps=3)
    assert outputs(found) == outputs(expected)
    for mine, theirs in zip(found, expected, strict=True):
        pairs = zip(mine.results, theirs.results, strict=True)
        for a, b in pairs:
            assert [e.token for e in a.prompt_logprobs] == [e.token for e in b.prompt_logprobs]
    assert sum(len(result.prompt_logprobs) for result in found[0].results) == 39
    assert logprobs(found) == pytest.approx(logprobs(expected), abs=1e-4)


def test_a_row_of_nan_fails_alone_and_so_does_its_row_in_flight(tmp_path: Path) -> None:
    broken = tiny_model("llama")
    with torch.no_grad():
        broken.model.embed_tokens.weight[5] = torch.nan
    tiny = Tiny.of(saved(broken, tmp_path / "m"))

    def asked() -> list[Request]:
        bad = Request(1, [9, 5, 8], [1, 2])
        scored = Request(3, [9, 5, 8, 7], [5, 6], Sampling(prompt_logprobs=1))
        return [bad, Request(2, [9, 4, 8], [3, 4], EVERYTHING), scored]

    found = asked()
    run(tiny.on_device(), found, steps=3, ahead=2)
    assert [r.results[0].error is None for r in found] == [False, True, False]
    good = asked()[1]
    run(tiny.on_host(), [good], steps=3)
    assert found[1].output == good.output and len(good.output) == 3


@pytest.mark.parametrize("make", [Tiny.on_device, Tiny.on_host])
def test_a_token_that_the_model_does_not_have_fails_its_row_alone(
    tiny: Tiny, make: Callable[[Tiny], AheadRunner]
) -> None:
    penalty = Sampling(repetition_penalty=1.5)
    bad, good = Request(1, [9, 96], [1, 2], penalty), Request(2, [9, 95], [3, 4], penalty)
    run(make(tiny), [bad, good], steps=3, ahead=2)
    assert "token id 96 is outside" in (bad.results[0].error or "")
    alone = Request(2, [9, 95], [3, 4], penalty)
    run(tiny.on_host(), [alone], steps=3)
    assert good.output == alone.output and len(good.output) == 3
    (only,) = make(tiny).step(StepBatch([Request(1, [96], [1]).row()])).rows.values()
    assert only.error and not only.tokens


def test_a_token_in_flight_is_one_of_the_vocabulary_even_where_none_was_drawn() -> None:
    rows = [
        Row(RequestId(i), [4, IN_FLIGHT], 0, [1], True, Sampling(), [4], [IN_FLIGHT])
        for i in range(2)
    ]
    previous = Previous(torch.tensor([-1, 7]), {RequestId(0): 0, RequestId(1): 1})
    on_device = moved(step_inputs(rows, 4), (1, 3), previous, torch.device("cpu"))
    assert on_device.tokens.tolist() == [4, 0, 4, 7]
    assert on_device.positions.tolist() == [0, 1, 0, 1]
    assert on_device.places.tolist() == [1, 3]


def test_a_step_that_raises_leaves_nothing_to_take_tokens_from(tiny: Tiny) -> None:
    """Nor do older tokens take their place."""
    runner = tiny.on_device()
    first = Request(1, prompt(3, 1), [1, 2])
    runner.step(StepBatch([first.row()]))
    with pytest.raises(AssertionError):
        runner.start(StepBatch([Request(2, prompt(9, 1), [3]).row()]))
    row = Row(RequestId(1), [IN_FLIGHT], 3, [1, 2], True, Sampling(), first.prompt, [IN_FLIGHT])
    (result,) = runner.step(StepBatch([row])).rows.values()
    assert result.error == "the step before drew no token"


def test_pages_leave_and_come_back_in_steps(tiny: Tiny) -> None:
    swapped, stayed = (Request(0, prompt(9, 0), [1, 2, 3, 4]) for _ in range(2))
    runner = tiny.on_device()
    run(runner, [swapped], steps=2)
    out = runner.step(StepBatch([], swap_out=[(1, 5), (2, 6), (3, 7)]))
    assert not out.rows and out.copy_s > 0.0
    runner._attention._pool[1:5].fill_(torch.nan)
    swapped.pages = [9, 10, 11, 12]
    row = swapped.row()
    back = StepBatch([row], swap_in=[(5, 9), (6, 10), (7, 11)])
    swapped.took(row, runner.step(back).rows[row.request])
    run(tiny.on_device(), [stayed], steps=3)
    assert swapped.output == stayed.output


def test_a_step_that_lands_waits_for_no_copies_and_tells_those_that_are_done(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, done_s = tiny.on_device(), [0.0, 0.25]

    def waits() -> None:
        pytest.fail("waited for copies, which may be later steps'")

    monkeypatch.setattr(runner._attention, "fence", waits)
    monkeypatch.setattr(runner._attention, "take_copy_s", lambda: done_s.pop(0))
    landings = [
        runner.start(StepBatch([], swap_out=[(1, 5)])),
        runner.start(StepBatch([])),
        runner.start(StepBatch([], swap_in=[(5, 2)])),
    ]
    assert [landing().copy_s for landing in landings] == [0.0, 0.0, 0.25]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=8), st.integers(0, 3), st.integers(1, 7))
def test_padding_is_rows_of_one_token_on_page_0(
    starts: list[int], more: int, page_size: int
) -> None:
    tables = [[50 * i + p for p in range(1, 50)] for i in range(len(starts))]
    rows = [
        Row(RequestId(i), [100 + i], start, tables[i], True, Sampling(), [], [])
        for i, start in enumerate(starts)
    ]
    size = len(rows) + more
    if not size:
        return
    padded = step_inputs(rows, page_size, size)
    meta = padded.meta
    assert (meta.graph_rows, meta.num_decodes) == (size, len(rows))
    assert meta.qo_indptr.tolist() == list(range(size + 1))
    assert padded.ends == tuple(range(1, len(rows) + 1))
    behind = [x[len(rows) :].tolist() for x in (padded.tokens, padded.positions, meta.slots)]
    assert behind == [[0] * more] * 3
    assert meta.kv_lens.tolist()[len(rows) :] == meta.last_page_len.tolist()[len(rows) :]
    assert meta.kv_lens.tolist()[len(rows) :] == [1] * more
    assert meta.kv_indices.tolist()[meta.kv_indptr[len(rows)] :] == [0] * more
    if rows:
        bare = step_inputs(rows, page_size).meta
        assert meta.kv_lens[: len(rows)].tolist() == bare.kv_lens.tolist()
        assert meta.slots[: len(rows)].tolist() == bare.slots.tolist()
        assert meta.kv_indices[: len(bare.kv_indices)].tolist() == bare.kv_indices.tolist()


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("without_gpu")
def test_a_gpu_that_is_not_there_is_refused_in_one_line(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"^model\.device = cuda: torch .*"):
        load(LoadOptions("/nowhere", device="cuda"))
    with pytest.raises(ModelError, match=r"fp16 is for GPUs"):
        load(LoadOptions(str(folder), dtype="fp16"))
    with pytest.raises(ModelError, match=r"^attention\.backend = flashinfer: it needs a GPU"):
        load(LoadOptions(str(folder), attention="flashinfer", num_pages=8))
    assert choose_device("auto") == "cpu"


def test_auto_takes_the_gpu_and_bf16_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [choose_device(name) for name in ("auto", "cpu", "cuda:1")] == [
        "cuda",
        "cpu",
        "cuda:1",
    ]
    assert choose_dtype("auto", "cuda") == "bf16"
    assert choose_dtype("fp16", "cuda") == "fp16"
    assert choose_dtype("auto", "cpu") == devices.fastest_dtype()


GPU = KVSpec(2, 9, 3, 64, dtype=torch.bfloat16, device="cuda")


def test_a_gpu_without_flashinfer_runs_the_reference_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "memory.attention.flashinfer", None)
    backend, why = choose("auto", GPU)
    assert backend.name == "reference"
    assert why.startswith("auto: flashinfer cannot be imported: ")
    with pytest.raises(BackendUnavailable, match=r"^attention\.backend = flashinfer: .*import"):
        choose("flashinfer", GPU)
    with pytest.raises(BackendUnavailable, match=r"attention\.backend = cpu: .*not on cuda"):
        choose("cpu", GPU)


def test_attention_is_made_batch_invariant_where_it_can_be_and_refused_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[bool] = []

    def flashinfer(spec: KVSpec, batch_invariant: bool, **_: object) -> ReferenceAttention:
        made.append(batch_invariant)
        return ReferenceAttention(spec)

    module = SimpleNamespace(FlashInferAttention=flashinfer, unsupported=lambda spec: None)
    monkeypatch.setitem(sys.modules, "memory.attention.flashinfer", module)
    assert choose("auto", GPU)[1] == "auto: flashinfer is installed, fa2 kernels"
    assert choose("auto", GPU, batch_invariant=True)[1].endswith(", no context split")
    assert made == [False, True]
    monkeypatch.setitem(sys.modules, "memory.attention.flashinfer", None)
    for requested in ("auto", "reference"):
        with pytest.raises(BackendUnavailable, match=r"^attention\.batch_invariant: "):
            choose(requested, GPU, batch_invariant=True)


class Asked(Exception):
    """Nothing is to be loaded: what was asked for is enough."""


@pytest.mark.parametrize("wished", [False, True])
def test_the_setting_for_batch_invariant_attention_reaches_the_loader(wished: bool) -> None:
    asked: list[bool] = []

    def bring_up(options: LoadOptions) -> NoReturn:
        asked.append(options.batch_invariant)
        raise Asked

    with pytest.raises(Asked):
        build(Settings(attention={"batch_invariant": wished}), bring_up)
    assert asked == [wished]


class FakeWeights:
    def tensor(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.ones(shape)


def test_the_oracle_runs_where_its_pool_is() -> None:
    """Tensors without memory stand for a GPU's: mixed with some on the host, they raise."""
    config = dataclasses.replace(
        SMOLLM2_135M, num_layers=2, vocab_size=96, context_tokens=64, qk_norm=True
    )
    rows = [
        Row(RequestId(i), [3] * tokens, start, [1, 2, 3], True, Sampling(), [3], [])
        for i, (tokens, start) in enumerate([(1, 4), (1, 9), (5, 2), (3, 0)])
    ]
    inputs = step_inputs(rows, 16)
    attention = ReferenceAttention(dataclasses.replace(spec_of(config), device="meta"))
    assert attention.alloc_pool(4).device.type == "meta"
    assert attention.alloc_host(4).device.type == "cpu"
    model = Tiny(config, OnDevice(FakeWeights(), "meta")).model(attention)
    attention.plan(inputs.meta)
    sent = [x.to("meta") for x in (inputs.tokens, inputs.positions, torch.tensor([0, 1, 6]))]
    logits = model.logits(model.hidden(*sent))
    assert (logits.device.type, tuple(logits.shape)) == ("meta", (3, 96))


class Unreached:
    """A place in a device's work that nobody may wait for."""

    def __init__(self, device: torch.device) -> None:
        assert device.type == "meta"

    def wait(self) -> None:
        pytest.fail("waited for the device")


def test_starting_a_step_looks_at_nothing_on_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tensors without memory stand for a GPU's: a value of one cannot be had. Chunks, prompts
    to be scored and rows that decode, in one step; then tokens in flight in the next."""
    fetched: list[torch.Tensor] = []
    monkeypatch.setattr(device_runner, "Mark", Unreached)
    monkeypatch.setattr(device_sampling, "download", fetched.append)
    config = dataclasses.replace(
        SMOLLM2_135M, num_layers=2, vocab_size=96, context_tokens=64, qk_norm=True
    )
    attention = ReferenceAttention(dataclasses.replace(spec_of(config), device="meta"))
    attention.alloc_pool(40)
    runner = DeviceRunner(
        Tiny(config, OnDevice(FakeWeights(), "meta")).model(attention), attention
    )
    scored = dataclasses.replace(EVERYTHING, prompt_logprobs=2)
    requests = [
        Request(i, prompt(length, i), list(range(1 + 6 * i, 7 + 6 * i)), way, chunk=7)
        for i, (length, way) in enumerate([(1, way) for way in WAYS] + [(9, scored)])
    ]
    for copies in (2, 2, 1):  # what was drawn, and the scores of the chunks
        fetched.clear()
        for request in requests:
            if request.flying == 2:  # the older one has landed
                request.flying, request.output = 1, [*request.output, 5]
        runner.start(StepBatch([request.row() for request in requests]))
        assert [x.device.type for x in fetched] == ["meta"] * copies
    assert [request.flying for request in requests] == [2] * 5


def test_random_weights_follow_the_seed_and_keep_activations_sane() -> None:
    config = dataclasses.replace(
        SMOLLM2_135M, num_layers=12, vocab_size=500, intermediate_size=192, hidden_size=128,
        num_q_heads=4, num_kv_heads=2, head_dim=32, context_tokens=256,
    )  # fmt: skip
    one, same, other = (RandomWeights(seed, "cpu", torch.float32) for seed in (1, 1, 2))
    assert torch.equal(one.tensor("a.weight", (4, 8)), same.tensor("a.weight", (4, 8)))
    assert not torch.equal(one.tensor("a.weight", (4, 8)), other.tensor("a.weight", (4, 8)))
    assert not torch.equal(one.tensor("a.weight", (4, 8)), one.tensor("b.weight", (4, 8)))
    options = LoadOptions("", "fp32", num_pages=64, device="cpu")
    loaded = bring_up(config, one, options)
    scored = Sampling(logprobs=20)
    request = Request(1, prompt(60, 1), list(range(1, 20)), scored)
    run(loaded.runner, [request], steps=8)
    assert len(request.output) == 8
    spread = [top[0][1] - top[-1][1] for r in request.results for top in [r.logprobs[0].top]]
    assert all(0.3 < value < 10 for value in spread)
    assert (loaded.device, loaded.dtype, loaded.num_pages) == ("cpu", "fp32", 64)
    assert LLAMA_8B.num_q_heads * LLAMA_8B.head_dim == LLAMA_8B.hidden_size
