"""The FlashInfer backend over FlashInfer's own wrappers, beside the reference. Only the
compiled modules are pretended."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from bench.flashinfer_emulation import Emulation, UnfencedPlan, emulated
from memory.attention.flashinfer import FlashInferAttention, unsupported
from memory.attention.flashinfer_device import Cpu, Past
from memory.attention.flashinfer_ops import FlashInferOps
from memory.attention.interface import KVSpec, Rotation
from memory.attention.side_copies import SideCopies
from memory.kernels.torch_ops import TorchOps
from tests.flashinfer_steps import CLOSE, PAGES, Beside, make_backend, make_meta, make_spec

MIXED = [(1, 1), (1, 33), (5, 5), (20, 37)]
MANY = [(1, length) for length in (1, 2, 16, 17, 40, 64, 65, 3)] + [(9, 9), (2, 30)]
DECODES = [(1, 18), (1, 1), (1, 47)]


@pytest.fixture
def kernels() -> Iterator[Emulation]:
    with emulated() as emulation, torch.inference_mode():
        yield emulation


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("group", [1, 3, 4, 8])
@pytest.mark.parametrize(
    ("rows", "launches"),
    [
        (MIXED, [(4, 27)]),
        (MANY, [(8, 8), (2, 11)]),
        (DECODES, [(3, 3)]),
    ],
    ids=["mixed", "split", "decodes"],
)
def test_a_step_is_the_reference_s_and_reads_no_unused_slot(
    kernels: Emulation,
    page_size: int,
    group: int,
    rows: list[tuple[int, int]],
    launches: list[tuple[int, int]],
) -> None:
    spec = make_spec(page_size, group)
    beside = Beside(spec, make_backend(spec))
    meta = make_meta(spec, [(n, min(length, 100)) for n, length in rows])
    beside.fill(meta)
    out, expected = beside.step(meta)
    assert_close(out, expected, **CLOSE)
    assert torch.equal(bits(beside.pool), bits(beside.expected_pool))
    assert kernels.launches == launches * spec.num_layers


def test_a_step_in_half_precision_is_the_reference_s(kernels: Emulation) -> None:
    spec = make_spec(dtype=torch.float16)
    beside = Beside(spec, make_backend(spec))
    meta = make_meta(spec, MANY)
    beside.fill(meta)
    out, expected = beside.step(meta)
    assert out.dtype == torch.float16
    assert_close(out, expected, rtol=0, atol=2**-9)
    assert any("float16" in name and "bfloat16" not in name for name in kernels.modules)


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("group", [1, 3, 4, 8])
def test_a_captured_step_replays_with_other_rows_and_padding(
    kernels: Emulation, page_size: int, group: int
) -> None:
    spec = make_spec(page_size, group)
    backend = make_backend(spec)
    beside = Beside(spec, backend)
    q, k, v = beside.vectors(4)
    out, replay = torch.full_like(q, torch.nan), None
    for seed, rows in enumerate(([], DECODES, [(1, 70)], [(1, 1), (1, 16), (1, 17), (1, 2)])):
        meta = make_meta(spec, rows, graph_rows=4, seed=seed)
        beside.fill(meta, seed)
        for x, new in zip((q, k, v), beside.vectors(4, seed), strict=True):
            x.copy_(new)
        backend.plan(meta)
        if replay is None:
            replay = kernels.capture(lambda: (backend.write(1, k, v), backend.run(1, q, out)))
        else:
            replay()
        beside.reference.plan(meta)
        beside.reference.write(1, k, v)
        expected = torch.empty_like(q)
        beside.reference.run(1, q, expected)
        used = len(rows)
        assert_close(out[:used], expected[:used], **CLOSE)
        assert out.isfinite().all()
        assert torch.equal(bits(beside.pool[1:]), bits(beside.expected_pool[1:]))


def test_graphs_of_two_sizes_and_eager_steps_alternate(kernels: Emulation) -> None:
    spec = make_spec()
    beside = Beside(spec, make_backend(spec))
    for seed, (rows, graph_rows) in enumerate(
        [(DECODES, 4), (DECODES[:2], 2), (MIXED, None), (DECODES[1:], 4), (MANY, None)] * 2
    ):
        meta = make_meta(spec, rows, graph_rows, seed)
        beside.fill(meta, seed)
        out, expected = beside.step(meta)
        used = int(meta.qo_indptr[len(rows)])
        assert_close(out[:, :used], expected[:, :used], **CLOSE)


def test_a_step_is_planned_once_for_all_layers(kernels: Emulation) -> None:
    spec = replace(make_spec(), num_layers=5)
    beside = Beside(spec, make_backend(spec))
    meta = make_meta(spec, MIXED)
    beside.fill(meta)
    beside.step(meta)
    assert len(kernels.split_kv) == 1
    assert len(kernels.launches) == 5


def test_a_step_without_rows_reaches_no_kernel(kernels: Emulation) -> None:
    spec = make_spec()
    beside = Beside(spec, make_backend(spec))
    beside.backend.plan(make_meta(spec, []))
    q, k, v = beside.vectors(0)
    beside.backend.write(0, k, v)
    beside.backend.run(0, q, torch.empty_like(q))
    qkv = torch.empty(0, 10 * spec.head_dim, dtype=spec.dtype)
    positions = torch.empty(0, dtype=torch.int64)
    rotated = beside.backend.rope_write(0, qkv, positions, Rotation(torch.ones(4, 64)))
    assert rotated.shape == (0, spec.num_q_heads, spec.head_dim)
    assert not kernels.modules and not kernels.launches


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norms", [False, True])
def test_queries_and_keys_are_normed_and_turned_and_stored(
    kernels: Emulation, dtype: torch.dtype, norms: bool
) -> None:
    spec = make_spec(dtype=dtype)
    beside = Beside(spec, make_backend(spec))
    meta = make_meta(spec, MIXED)
    beside.fill(meta)
    random = torch.Generator().manual_seed(1)
    qkv = torch.randn(27, 10 * spec.head_dim, generator=random).to(dtype)
    angles = torch.rand(40, spec.head_dim // 2, generator=random) * 6
    weights = (
        torch.rand(2, spec.head_dim, generator=random).to(dtype) if norms else (None, None)
    )
    rotation = Rotation(torch.cat((angles.cos(), angles.sin()), dim=1), *weights, eps=1e-5)
    positions = torch.randperm(40, generator=random)[:27]
    turned = []
    for backend in (beside.backend, beside.reference):
        backend.plan(meta)
        turned.append(backend.rope_write(1, qkv.clone(), positions, rotation))
    assert_close(turned[0], turned[1], rtol=0, atol=2**-5)
    assert_close(beside.pool, beside.expected_pool, rtol=0, atol=2**-5, equal_nan=True)
    assert torch.equal(bits(beside.pool[:, 0]), bits(beside.expected_pool[:, 0]))


def test_planning_waits_for_the_plan_before(
    kernels: Emulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec()
    fenced = Beside(spec, make_backend(spec)).backend
    for _ in range(3):
        fenced.plan(make_meta(spec, MANY))
        fenced.plan(make_meta(spec, DECODES, 4))
    monkeypatch.setattr(Cpu, "event", lambda device: Past())
    for rows, graph_rows in ((MIXED, None), (DECODES, None), (DECODES, 4)):
        beside = Beside(spec, make_backend(spec))
        beside.backend.plan(make_meta(spec, rows, graph_rows))
        with pytest.raises(UnfencedPlan):
            beside.backend.plan(make_meta(spec, rows, graph_rows))


@pytest.mark.parametrize(
    ("rows", "graph_rows", "copies"), [(DECODES, None, 4), (DECODES, 4, 4), ([(5, 9)], None, 6)]
)
def test_no_more_is_staged_than_is_copied(
    kernels: Emulation,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[tuple[int, int]],
    graph_rows: int | None,
    copies: int,
) -> None:
    """Slots, pages, page offsets and last lengths; for chunks, queries' offsets and lengths."""
    spec, staged = make_spec(), []

    def stage(device: Cpu, values: torch.Tensor) -> torch.Tensor:
        staged.append(len(values))
        return values.clone()

    monkeypatch.setattr(Cpu, "staged", stage)
    backend = Beside(spec, make_backend(spec)).backend
    staged.clear()
    backend.plan(make_meta(spec, rows, graph_rows))
    assert len(staged) == copies


def test_what_a_step_was_planned_with_may_be_reused_at_once(kernels: Emulation) -> None:
    spec = make_spec()
    beside = Beside(spec, make_backend(spec))
    meta, kept = make_meta(spec, MANY), make_meta(spec, MANY)
    beside.fill(meta)
    beside.backend.plan(meta)
    for field in ("qo_indptr", "kv_indptr", "kv_indices", "last_page_len", "kv_lens", "slots"):
        getattr(meta, field).fill_(-1)
    q, k, v = beside.vectors(len(kept.slots))
    out, expected = torch.empty_like(q), torch.empty_like(q)
    beside.reference.plan(kept)
    for backend, into in ((beside.backend, out), (beside.reference, expected)):
        backend.write(0, k, v)
        backend.run(0, q, into)
    assert_close(out, expected, **CLOSE)


def test_the_wrappers_refuse_another_dtype_and_a_misspelt_keyword(kernels: Emulation) -> None:
    spec = make_spec()
    beside = Beside(spec, make_backend(spec))
    for rows in (MIXED, DECODES):
        meta = make_meta(spec, rows)
        beside.backend.plan(meta)
        q, _, _ = beside.vectors(len(meta.slots))
        with pytest.raises(ValueError, match="dtype"):
            beside.backend.run(0, q.half(), torch.empty_like(q))
        with pytest.raises(ValueError, match="dtype"):
            beside.backend.run(0, q, torch.empty_like(q).half())
        with pytest.raises(ValueError, match="q"):
            beside.backend.run(0, q[:-1], torch.empty_like(q)[:-1])
    for plan in (beside.backend._prefill, beside.backend._decode):
        with pytest.raises(TypeError):
            plan._wrapper.plan(q_dtype=spec.dtype)


def test_a_page_table_that_does_not_fit_is_refused_before_any_copy(kernels: Emulation) -> None:
    spec = make_spec()
    backend = Beside(spec, make_backend(spec)).backend
    good = make_meta(spec, DECODES)
    wrong = {
        f"leaves the pool of {PAGES}": replace(good, kv_indices=good.kv_indices + PAGES),
        "leaves the pool": replace(good, kv_indices=good.kv_indices - PAGES),
        "does not fit": replace(good, kv_lens=good.kv_lens + 16),
        "page table": replace(good, kv_indices=good.kv_indices[:-1]),
        "a graph of 4 rows got 3": replace(good, graph_rows=4),
        "3 rows are none of": replace(good, graph_rows=3),
    }
    for message, meta in wrong.items():
        with pytest.raises(ValueError, match=message):
            backend.plan(meta)
    assert not kernels.split_kv


def test_pages_come_back_from_the_host_elsewhere_bit_for_bit(kernels: Emulation) -> None:
    spec = make_spec()
    backend = make_backend(spec)
    pool = Beside(spec, backend).pool
    with pytest.raises(ValueError, match="alloc_host"):
        backend.copy_out([(1, 0)])
    host = backend.alloc_host(4)
    assert host.shape == (4, *pool.shape[1:]) and not host.any()
    pool.normal_()
    kept = pool[[5, 6, 9]].clone()
    backend.copy_out([(5, 1), (6, 2), (9, 0)])
    backend.fence()
    pool.fill_(torch.nan)
    backend.copy_in([(1, 20), (2, 11), (0, 12)])
    backend.fence()
    assert torch.equal(pool[[20, 11, 12]], kept)
    assert pool[1:11].isnan().all()


def test_a_step_waits_for_the_copies_of_its_pages(
    kernels: Emulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec()
    backend = Beside(spec, make_backend(spec)).backend
    backend.alloc_host(2)
    waited_for: list[list[int]] = []
    monkeypatch.setattr(
        SideCopies, "before_compute", lambda copies, pages: waited_for.append(pages.tolist())
    )
    for meta in (make_meta(spec, MANY), make_meta(spec, DECODES, 4)):
        backend.plan(meta)
        assert waited_for.pop() == meta.kv_indices.tolist()


def test_graphs_are_for_few_rows_or_multiples_of_eight(kernels: Emulation) -> None:
    assert list(make_backend(make_spec(), max_rows=20).capture_sizes) == [1, 2, 4, 8, 16]
    assert list(make_backend(make_spec(), max_rows=3).capture_sizes) == [1, 2]


def test_batch_invariance_splits_no_context_and_keeps_decode_rows_apart(
    kernels: Emulation,
) -> None:
    spec = make_spec()
    beside = Beside(spec, make_backend(spec, batch_invariant=True))
    meta = make_meta(spec, MIXED)
    beside.fill(meta)
    out, expected = beside.step(meta)
    assert_close(out, expected, **CLOSE)
    assert kernels.launches[:2] == [(2, 2), (2, 25)]
    assert kernels.split_kv == [False, False]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": torch.float32}, "float32"),
        ({"head_dim": 80}, "head_dim 80"),
        ({"num_kv_heads": 4}, "6 query heads"),
    ],
)
def test_what_flashinfer_has_no_kernel_for_is_refused(
    change: dict[str, object], reason: str
) -> None:
    spec: KVSpec = replace(make_spec(), **change)
    assert reason in (unsupported(spec) or "")
    with pytest.raises(ValueError, match=reason):
        FlashInferAttention(spec)


def test_an_old_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert "7.5" in (unsupported(replace(make_spec(), device="cuda")) or "")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert unsupported(replace(make_spec(), device="cuda:1")) is None


def test_layer_kernels_are_torch_s(kernels: Emulation) -> None:
    ops, plain = FlashInferOps(), TorchOps()
    x, residual = torch.randn(5, 64).bfloat16(), torch.randn(5, 64).bfloat16()
    weight, kept = torch.rand(64).bfloat16(), residual.clone()
    assert_close(ops.rms_norm(x, weight, 1e-5), plain.rms_norm(x, weight, 1e-5))
    sums = [
        each.add_rms_norm(to, x, weight, 1e-5) for each, to in ((ops, residual), (plain, kept))
    ]
    assert_close(*sums)
    assert torch.equal(residual, kept)
    assert_close(ops.silu_and_mul(x), plain.silu_and_mul(x))
    logits = torch.tensor([[0.0, 2, 2], [0, torch.nan, 3], [-torch.inf] * 3])
    assert ops.argmax(logits).tolist() == [1, -1, -1]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.int16)
