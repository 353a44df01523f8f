"""Paged attention: both backends against a naive oracle, and the bits of the C++ kernel."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from memory.attention.choose import BackendUnavailable, choose
from memory.attention.copies import copy_pages
from memory.attention.cpu import CpuAttention
from memory.attention.interface import AttentionBackend, KVSpec, StepMeta
from memory.attention.reference import ReferenceAttention
from memory.kernels import library

BUILT = library.PATH.exists()
LEVELS = range(library.load().walkway_best_level() + 1) if BUILT else ()
BACKENDS = [ReferenceAttention] + ([CpuAttention] if BUILT else [])
LAYER = 1
PAGE = st.integers(0, 9)
PAIRS = st.lists(st.tuples(PAGE, PAGE), unique_by=lambda pair: pair[1])
needs_kernels = pytest.mark.skipif(not BUILT, reason="the extension was not built")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors are tiny here, and a busy neighbour makes every thread's hand-over slow."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[int]:
    """Each instruction set that this CPU has, in turn."""
    library.load().walkway_set_level(request.param)
    yield request.param
    library.load().walkway_set_level(LEVELS[-1])


@dataclass(frozen=True)
class Request:
    """`tokens` new ones at the end of `length`; everything about it follows from `seed`."""

    seed: int
    length: int
    tokens: int = 1

    def qkv(self, spec: KVSpec) -> tuple[Tensor, Tensor, Tensor]:
        """q [length, q_heads, dim], k and v [length, kv_heads, dim] of every position."""
        generator = torch.Generator().manual_seed(self.seed)
        heads = spec.num_q_heads + 2 * spec.num_kv_heads
        values = torch.randn(256, heads, spec.head_dim, generator=generator)[: self.length]
        q, k, v = values.split([spec.num_q_heads, spec.num_kv_heads, spec.num_kv_heads], 1)
        return (2 * q).to(spec.dtype), k.to(spec.dtype), v.to(spec.dtype)


def spec_of(group: int = 3, head_dim: int = 64, page_size: int = 16, **more: object) -> KVSpec:
    return KVSpec(2, 2 * group, 2, head_dim, page_size, **more)  # type: ignore[arg-type]


def meta_of(requests: Sequence[Request], tables: Sequence[Tensor], page_size: int) -> StepMeta:
    """The step that computes each request's last tokens."""
    slots = [
        table.long()[at // page_size] * page_size + at % page_size
        for request, table in zip(requests, tables, strict=True)
        for at in [torch.arange(request.length - request.tokens, request.length)]
    ]
    lens = torch.tensor([request.length for request in requests], dtype=torch.int32)
    return StepMeta(
        qo_indptr=offsets([request.tokens for request in requests]),
        kv_indptr=offsets([len(table) for table in tables]),
        kv_indices=torch.cat(list(tables)).int(),
        last_page_len=(lens - 1) % page_size + 1,
        kv_lens=lens,
        slots=torch.cat(slots),
        num_decodes=sum(request.tokens == 1 for request in requests),
    )


def offsets(counts: Sequence[int]) -> Tensor:
    return torch.tensor([0, *counts]).cumsum(0).int()


def attend(
    backend: AttentionBackend, requests: Sequence[Request], order: int = 0
) -> list[Tensor]:
    """Each request's output, over a pool full of NaN with pages in a random order."""
    spec = backend.spec
    counts = [-(-request.length // spec.page_size) for request in requests]
    pool = backend.alloc_pool(sum(counts) + 3).fill_(torch.nan)
    generator = torch.Generator().manual_seed(order)
    pages = torch.randperm(len(pool) - 1, generator=generator) + 1
    tables = list(pages[: sum(counts)].split(counts))
    contents = [request.qkv(spec) for request in requests]
    backend.plan(
        meta_of([replace(r, tokens=r.length) for r in requests], tables, spec.page_size)
    )
    backend.write(
        LAYER, torch.cat([c[1] for c in contents]), torch.cat([c[2] for c in contents])
    )
    backend.plan(meta_of(requests, tables, spec.page_size))
    q = torch.cat([c[0][-r.tokens :] for c, r in zip(contents, requests, strict=True)])
    out = torch.empty_like(q)
    backend.run(LAYER, q, out)
    return list(out.split([request.tokens for request in requests]))


def naive(spec: KVSpec, request: Request) -> Tensor:
    """float64 softmax over the whole context."""
    q, k, v = (x.double() for x in request.qkv(spec))
    group = spec.num_q_heads // spec.num_kv_heads
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * spec.head_dim**-0.5
    hidden = torch.ones(request.length, request.length).triu(1).bool()
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v)[-request.tokens :]


def assert_close(out: Tensor, expected: Tensor) -> None:
    bound = 1e-2 if out.dtype == torch.bfloat16 else 3e-6
    torch.testing.assert_close(out.double(), expected, atol=bound, rtol=bound)


MIXED = [
    Request(1, 1),
    Request(2, 15),
    Request(3, 64),
    Request(4, 200),
    Request(5, 33, 33),
    Request(6, 150, 7),
    Request(7, 65, 64),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("group", [1, 3, 4, 8])
@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mixed_step_equals_the_oracle(
    backend: type[AttentionBackend], page_size: int, group: int, dtype: torch.dtype
) -> None:
    spec = spec_of(group, 64, page_size, dtype=dtype)
    for request, out in zip(MIXED, attend(backend(spec), MIXED), strict=True):
        assert_close(out, naive(spec, request))


@needs_kernels
@pytest.mark.parametrize("head_dim", [8, 24, 40, 128, 256])
def test_every_level_knows_every_head_dim(level: int, head_dim: int) -> None:
    spec = spec_of(3, head_dim)
    for request, out in zip(MIXED, attend(CpuAttention(spec), MIXED), strict=True):
        assert_close(out, naive(spec, request))


@needs_kernels
@settings(max_examples=25, deadline=None)
@given(data=st.data(), group=st.integers(1, 12), page_size=st.integers(1, 40))
def test_any_step_equals_the_oracle(data: st.DataObject, group: int, page_size: int) -> None:
    requests = []
    for seed in range(data.draw(st.integers(1, 5))):
        length = data.draw(st.integers(1, 90))
        tokens = data.draw(st.sampled_from([1, length, (length + 1) // 2]))
        requests.append(Request(seed, length, tokens))
    requests.sort(key=lambda request: request.tokens > 1)
    spec = spec_of(group, 16, page_size)
    for request, out in zip(requests, attend(CpuAttention(spec), requests), strict=True):
        assert_close(out, naive(spec, request))


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("group", [1, 3, 8])
def test_a_row_has_the_same_bits_whatever_its_chunks(
    level: int, group: int, dtype: torch.dtype
) -> None:
    backend = CpuAttention(spec_of(group, dtype=dtype))
    whole = attend(backend, [Request(1, 70, 70)])[0]
    for chunk in (1, 7, 16, 64):
        parts = [
            attend(backend, [Request(1, end, end - start)], order=start)[0]
            for start in range(0, 70, chunk)
            for end in [min(start + chunk, 70)]
        ]
        assert torch.equal(whole, torch.cat(parts))


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_has_the_same_bits_whatever_its_batch_mates(
    level: int, dtype: torch.dtype
) -> None:
    backend = CpuAttention(spec_of(dtype=dtype))
    together = attend(backend, MIXED)
    reordered = attend(backend, [*MIXED[3::-1], *MIXED[:3:-1]], order=1)
    reordered = [*reordered[3::-1], *reordered[:3:-1]]
    for request, first, second in zip(MIXED, together, reordered, strict=True):
        assert torch.equal(first, attend(backend, [request], order=2)[0])
        assert torch.equal(first, second)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_has_the_same_bits_whatever_the_page_size(level: int, dtype: torch.dtype) -> None:
    expected = attend(CpuAttention(spec_of(dtype=dtype)), MIXED)
    for page_size in (1, 3, 8, 64, 256):
        found = attend(CpuAttention(spec_of(page_size=page_size, dtype=dtype)), MIXED)
        assert all(map(torch.equal, expected, found))


@needs_kernels
def test_a_row_has_the_same_bits_whatever_the_threads() -> None:
    backend = CpuAttention(spec_of())
    expected = attend(backend, MIXED)
    for count in (2, 3):
        torch.set_num_threads(count)
        assert all(map(torch.equal, expected, attend(backend, MIXED)))


@needs_kernels
def test_a_nan_key_stays_in_its_request_and_behind_its_position(level: int) -> None:
    backend = CpuAttention(spec_of())
    requests = [Request(1, 40, 40), Request(2, 40, 40)]
    clean = attend(backend, requests)
    slot = int(backend._meta.slots[20])
    pool = backend._pool
    pool[slot // 16, LAYER, :, :, slot % 16] = torch.nan
    q = torch.cat([request.qkv(backend.spec)[0] for request in requests])
    out = torch.empty_like(q)
    backend.run(LAYER, q, out)
    assert torch.equal(out[:20], clean[0][:20])
    assert out[20:40].isnan().all()
    assert torch.equal(out[40:], clean[1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_pages_survive_the_way_out_and_back(backend: type[AttentionBackend]) -> None:
    memory = backend(spec_of())
    pool, host = memory.alloc_pool(8), memory.alloc_host(8)
    assert pool[0].is_contiguous()
    assert pool[0].nbytes == memory.spec.page_bytes
    pool.normal_()
    before = pool.clone()
    memory.copy_out([(1, 4), (2, 5), (3, 6), (5, 7), (6, 0)])
    assert torch.equal(host[[4, 5, 6, 7, 0]], before[[1, 2, 3, 5, 6]])
    pool.zero_()
    memory.copy_in([(0, 2), (4, 7), (5, 1)])
    assert torch.equal(pool[[2, 7, 1]], before[[6, 1, 2]])
    assert not pool[[0, 3, 4, 5, 6]].any()


@given(
    pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), unique_by=lambda p: p[1])
)
def test_copies_of_any_pages_are_exact(pairs: list[tuple[int, int]]) -> None:
    source, target = torch.arange(10), torch.full((10,), -1)
    copy_pages(source, target, pairs)
    expected = {to: at for at, to in pairs}
    assert target.tolist() == [expected.get(i, -1) for i in range(10)]


@needs_kernels
@pytest.mark.parametrize("table", [[1, 9], [1, -1], [1]])
def test_a_page_table_that_does_not_fit_is_refused(table: list[int]) -> None:
    backend = CpuAttention(spec_of())
    backend.alloc_pool(9)
    meta = meta_of([Request(1, 20)], [torch.tensor([1, 2])], 16)
    meta.kv_indices = torch.tensor(table, dtype=torch.int32)
    meta.kv_indptr = offsets([len(table)])
    with pytest.raises(ValueError, match="row 0 of the step"):
        backend.plan(meta)


def test_cpu_without_its_kernels_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(library, "PATH", library.PATH.with_name("absent.so"))
    library.load.cache_clear()
    try:
        with pytest.raises(BackendUnavailable, match=r"^attention\.backend = cpu: .*not built"):
            choose("cpu", spec_of())
        backend, why = choose("auto", spec_of())
        assert (backend.name, why[:6]) == ("reference", "auto: ")
    finally:
        library.load.cache_clear()


@needs_kernels
def test_auto_takes_the_kernels_where_they_fit_and_says_why() -> None:
    backend, why = choose("auto", spec_of())
    assert (backend.name, why) == ("cpu", f"auto: the C++ kernels are built, {library.level()}")
    backend, why = choose("auto", spec_of(head_dim=20))
    assert (backend.name, "head_dim 20" in why) == ("reference", True)
    backend, why = choose("auto", spec_of(), widths=(64, 60))
    assert (backend.name, why) == ("reference", "auto: layer width 60 is not a multiple of 8")
    with pytest.raises(BackendUnavailable, match="layer width 60"):
        choose("cpu", spec_of(), widths=(64, 60))
    assert choose("reference", spec_of())[0].name == "reference"
    with pytest.raises(BackendUnavailable, match="float16"):
        choose("cpu", spec_of(dtype=torch.float16))
