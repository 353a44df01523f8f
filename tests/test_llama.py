"""The model side as the engine sees it: rows in, tokens out, equal to transformers and
indifferent to batch, chunk and page size."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from memory.attention.choose import BackendUnavailable
from memory.kernels.library import KernelsMissing
from memory.kernels.library import load as load_kernels
from models.available_memory import available_bytes
from models.batch import RequestId, Row, RowResult, Runner, Sampling, StepBatch
from models.errors import ModelError
from models.fits import refuse_too_large, weight_bytes
from models.invariance import make_invariant
from models.linear import Linear, Product, RowPadding
from models.load import LoadOptions, load
from models.random_weights import LLAMA_8B
from models.sizes import in_units
from models.step_inputs import step_inputs
from tests.tiny_models import KINDS, saved, tiny_model

GREEDY = Sampling()
SCORED = Sampling(logprobs=20)
PAGES = 64


def kernels_are_built() -> bool:
    try:
        load_kernels()
    except KernelsMissing:
        return False
    return True


BACKENDS = ["reference", *(["cpu"] if kernels_are_built() else [])]
needs_kernels = pytest.mark.skipif(not kernels_are_built(), reason="no C++ kernels here")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of tiny model, saved."""
    root = tmp_path_factory.mktemp("models")
    for kind in KINDS:
        saved(hf(kind), root / kind)
    return root


@cache
def hf(kind: str) -> torch.nn.Module:
    return tiny_model(kind)


def options(folder: Path, **changes: object) -> LoadOptions:
    plain = LoadOptions(str(folder), dtype="fp32", num_pages=PAGES, page_size=4)
    return replace(plain, **changes)


def prompt(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, 96, (length,), generator=generator).tolist()


class Request:
    """A request's life without an engine: chunks of its prompt, then token by token."""

    def __init__(
        self, ids: list[int], pages: list[int], sampling: Sampling = GREEDY, id: int = 0
    ) -> None:
        self.id = RequestId(id)
        self.ids, self.pages, self.sampling = ids, pages, sampling
        self.output: list[int] = []
        self.computed = 0
        self.results: list[RowResult] = []

    def row(self, limit: int = 1000) -> Row:
        known = self.ids + self.output
        tokens = known[self.computed :][:limit]
        samples = self.computed + len(tokens) == len(known)
        return Row(
            self.id,
            tokens,
            self.computed,
            self.pages,
            samples,
            self.sampling,
            self.ids,
            list(self.output),
        )

    def took(self, row: Row, result: RowResult) -> None:
        self.computed += len(row.tokens)
        self.output += result.tokens
        self.results.append(result)


def run(runner: Runner, requests: list[Request], steps: int, chunk: int = 1000) -> None:
    for _ in range(steps):
        rows = [request.row(chunk) for request in requests]
        results = runner.step(StepBatch(rows)).rows
        for request, row in zip(requests, rows, strict=True):
            request.took(row, results[request.id])


def scores(request: Request) -> list[object]:
    """All that was said of the drawn tokens, to the bit."""
    return [result.logprobs for result in request.results if result.tokens]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_and_logprobs_are_those_of_transformers(
    folders: Path, kind: str, backend: str
) -> None:
    runner = load(options(folders / kind, attention=backend)).runner
    request = Request(prompt(50), list(range(1, 30)), SCORED)
    run(runner, [request], steps=12, chunk=23)
    ids = torch.tensor([request.ids + request.output])
    with torch.inference_mode():
        expected = hf(kind)(ids).logits[0, 49:-1].log_softmax(-1)
    assert request.output == expected.argmax(-1).tolist()
    for values, result in zip(expected, request.results[2:], strict=True):
        for token, logprob in result.logprobs[0].top:
            assert logprob == pytest.approx(values[token].item(), abs=1e-3)


@needs_kernels
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["llama, llama3 rope", "qwen2", "qwen3"])
def test_bits_do_not_depend_on_batch_chunk_or_page(
    folders: Path, kind: str, dtype: str
) -> None:
    def scored(page_size: int, chunk: int, mates: int) -> list[object]:
        loaded = load(
            options(
                folders / kind, dtype=dtype, attention="cpu", page_size=page_size, num_pages=400
            )
        )
        assert loaded.batch_invariant, loaded.batch_why
        first = Request(prompt(61), list(range(1, 80)), SCORED)
        others = [
            Request(prompt(3 + i, i), list(range(80 + 16 * i, 96 + 16 * i)), GREEDY, 1 + i)
            for i in range(mates)
        ]
        run(loaded.runner, [*others, first], steps=-(-61 // chunk) + 3, chunk=chunk)
        return scores(first)

    plain = scored(16, 1000, 0)
    assert len(plain) == 4
    assert scored(16, 1000, 12) == plain
    assert scored(16, 7, 0) == plain
    assert scored(1, 13, 3) == plain


@pytest.mark.parametrize("backend", BACKENDS)
def test_prompt_logprobs_are_those_of_the_raw_distribution(folders: Path, backend: str) -> None:
    runner = load(options(folders / "llama", attention=backend)).runner
    request = Request(prompt(40), list(range(1, 20)), Sampling(prompt_logprobs=3))
    run(runner, [request], steps=5, chunk=12)
    found = [entry for result in request.results for entry in result.prompt_logprobs]
    with torch.inference_mode():
        expected = hf("llama")(torch.tensor([request.ids])).logits[0].log_softmax(-1)
    assert [entry.token for entry in found] == request.ids[1:]
    for entry, values in zip(found, expected, strict=False):
        assert entry.logprob == pytest.approx(values[entry.token].item(), abs=1e-3)
        assert [token for token, _ in entry.top] == values.topk(3).indices.tolist()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_row_of_nan_fails_alone(folders: Path, tmp_path: Path, backend: str) -> None:
    broken = tiny_model("llama")
    with torch.no_grad():
        broken.model.embed_tokens.weight[5] = torch.nan
    runner = load(options(saved(broken, tmp_path / "m"), attention=backend)).runner
    bad = Request([9, 5, 8], [1], id=1)
    good = Request(prompt(6, seed=3), [2, 3], id=2)
    assert 5 not in good.ids
    scored = Request([9, 5, 8, 7], [4], Sampling(prompt_logprobs=1), id=3)
    rows = [bad.row(), good.row(), scored.row(limit=2)]
    results = runner.step(StepBatch(rows)).rows
    assert [results[r.request].error is None for r in rows] == [False, True, False]
    assert results[good.id].tokens
    assert not results[bad.id].tokens


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_token_that_the_model_does_not_have_fails_its_row_alone(
    folders: Path, backend: str
) -> None:
    runner = load(options(folders / "llama", attention=backend)).runner
    bad, good = Request([9, 96], [1], id=1), Request([9, 95], [2], id=2)
    alone = Request([9, 95], [3], id=3)
    results = runner.step(StepBatch([bad.row(), good.row()])).rows
    assert "token id 96" in (results[bad.id].error or "")
    assert runner.step(StepBatch([bad.row()])).rows == {bad.id: results[bad.id]}
    run(runner, [alone], steps=1)
    assert list(results[good.id].tokens) == alone.output


def test_end_ids_that_the_model_does_not_have_are_left_out(tmp_path: Path) -> None:
    model = tiny_model("llama")
    model.generation_config.eos_token_id = [1, 96]
    folder = saved(model, tmp_path / "m")
    assert load(options(folder)).eos_ids == (1,)


@pytest.mark.parametrize("widths", [{"hidden_size": 60}, {"intermediate_size": 100}])
def test_a_model_of_odd_widths_runs_on_what_can_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, widths: dict[str, object]
) -> None:
    monkeypatch.setitem(KINDS, "odd", ("Llama", widths))
    folder = saved(tiny_model("odd"), tmp_path / "m")
    loaded = load(options(folder, attention="auto"))
    request = Request(prompt(5), [1, 2])
    run(loaded.runner, [request], steps=2)
    assert (loaded.attention, len(request.output)) == ("reference", 2)
    with pytest.raises(ModelError, match=r"attention\.backend = cpu: "):
        load(options(folder, attention="cpu"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_pages_that_went_to_the_host_and_back_read_the_same(
    folders: Path, backend: str
) -> None:
    chosen = options(folders / "llama", attention=backend, host_bytes=2**20)
    stayed, moved = Request(prompt(9), [1, 2, 3, 4]), Request(prompt(9), [1, 2, 3, 4])
    run(load(chosen).runner, [stayed], steps=4)
    runner = load(chosen).runner
    run(runner, [moved], steps=2)
    other = Request(prompt(12, seed=1), [1, 2, 3], id=1)
    row = other.row()
    # The other request takes the pages in the very step that copies them out.
    runner.step(StepBatch([row], swap_out=[(1, 3), (2, 4), (3, 5)]))
    assert runner.step(StepBatch([], swap_in=[(3, 7), (4, 8), (5, 9)])).rows == {}
    moved.pages = [7, 8, 9, 10]
    run(runner, [moved], steps=2)
    assert moved.output == stayed.output


def test_a_chunk_alone_in_its_step_says_nothing(folders: Path) -> None:
    runner = load(options(folders / "llama")).runner
    request = Request(prompt(10), [1, 2, 3])
    run(runner, [request], steps=1, chunk=4)
    assert request.results == [RowResult()]


def test_pools_larger_than_memory_are_refused_with_both_numbers(folders: Path) -> None:
    huge = options(folders / "llama", num_pages=None, pool_bytes=2**50)
    with pytest.raises(ModelError, match=r"need 1024 TiB .* and \S+ GiB of memory"):
        load(huge)


def test_a_pool_of_less_than_two_pages_is_refused(folders: Path) -> None:
    with pytest.raises(ModelError, match="at least 2"):
        load(options(folders / "llama", num_pages=None, pool_bytes=3000))


def test_a_container_limit_bounds_what_is_available(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    assert available_bytes(meminfo, tmp_path) == 8_192_000
    (tmp_path / "memory.current").write_text("3000\n")
    (tmp_path / "memory.stat").write_text("anon 2500\ninactive_file 400\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(meminfo, tmp_path) == 8_192_000
    (tmp_path / "memory.max").write_text("5000\n")
    assert available_bytes(meminfo, tmp_path) == 2400


def fickle(smallest: int) -> Linear:
    """A product whose rows change where the batch is no multiple of `smallest`."""

    def kernel(weight: Tensor, bias: Tensor | None) -> Product:
        return lambda x: x @ weight.T + (1.0 if len(x) % smallest else 0.0)

    return Linear(torch.zeros(8, 16), None, kernel)


def test_the_start_up_check_pads_to_where_the_batch_does_not_matter() -> None:
    product = fickle(8)
    assert make_invariant([product]) is None
    assert product.padding == RowPadding(multiple=8)
    assert product(torch.zeros(3, 16)).shape == (3, 8)
    assert not product(torch.zeros(3, 16)).any()


def test_the_start_up_check_names_a_product_that_no_padding_helps() -> None:
    assert make_invariant([fickle(3)]) == (
        "products of 16 x 8 depend on their batch on this machine"
    )


def test_products_of_many_rows_are_computed_in_blocks() -> None:
    seen: list[int] = []

    def kernel(weight: Tensor, bias: Tensor | None) -> Product:
        return lambda x: (seen.append(len(x)), x @ weight.T)[1]

    product = Linear(torch.eye(4), None, kernel, max_rows=32)
    x = torch.randn(70, 4)
    assert torch.equal(product(x), x)
    assert product(x[:0]).shape == (0, 4)
    assert seen == [32, 32, 6]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=8),
    st.integers(1, 7),
)
def test_a_step_lays_its_rows_out_decodes_first(
    shapes: list[tuple[int, int]], page_size: int
) -> None:
    rows = [
        Row(
            RequestId(i),
            [100 * i + j for j in range(n)],
            start,
            [50 * i + p for p in range(50)],
            True,
            GREEDY,
            [],
            [],
        )
        for i, (start, n) in enumerate(shapes)
    ]
    inputs = step_inputs(rows, page_size)
    meta = inputs.meta
    assert meta.num_decodes == sum(n == 1 for _, n in shapes)
    assert [len(row.tokens) for row in inputs.rows[: meta.num_decodes]] == [
        1
    ] * meta.num_decodes
    at = 0
    for i, row in enumerate(inputs.rows):
        end = row.start + len(row.tokens)
        assert meta.qo_indptr[i] == at
        assert meta.kv_lens[i] == end
        pages = meta.kv_indices[meta.kv_indptr[i] : meta.kv_indptr[i + 1]].tolist()
        assert pages == list(row.pages[: -(-end // page_size)])
        assert meta.last_page_len[i] == end - (len(pages) - 1) * page_size
        for j, token in enumerate(row.tokens):
            place = row.start + j
            assert inputs.tokens[at] == token
            assert inputs.positions[at] == place
            slot = row.pages[place // page_size] * page_size + place % page_size
            assert meta.slots[at] == slot
            at += 1
        assert inputs.ends[i] == at
    assert len(inputs.tokens) == at


@pytest.mark.parametrize(("ranks", "each"), [(1, ""), (2, " on each of 2 ranks")])
def test_weights_larger_than_memory_are_refused_before_they_are_read(
    ranks: int, each: str
) -> None:
    need = weight_bytes(LLAMA_8B, ranks, 2)
    with pytest.raises(ModelError) as raised:
        refuse_too_large(LLAMA_8B, ranks, "bf16", 2, 4 << 30, "memory")
    told = f"the weights need {in_units(need)} in bf16{each}, and 4 GiB of memory are free"
    assert str(raised.value) == told
    refuse_too_large(LLAMA_8B, ranks, "bf16", 2, need, "memory")


def test_a_model_larger_than_memory_does_not_start(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.load.available_bytes", lambda: 1000)
    with pytest.raises(ModelError, match=r"the weights need \S+ KiB in fp32, and 1000 B"):
        load(options(folders / "llama"))


def test_kernels_for_another_gpu_end_the_start_in_one_line(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(backend: object) -> None:
        raise BackendUnavailable("for another GPU")

    monkeypatch.setattr("models.load.refuse_kernels_of_others", refuse)
    with pytest.raises(ModelError, match=r"^for another GPU$"):
        load(options(folders / "llama"))
