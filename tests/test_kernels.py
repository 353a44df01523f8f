"""The C++ kernels between a layer's matrix products, against plain torch."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from memory.attention.cpu import CpuAttention
from memory.attention.interface import KVSpec, Rotation, StepMeta
from memory.attention.reference import ReferenceAttention
from memory.kernels import library
from memory.kernels.interface import LayerOps
from memory.kernels.ops import NativeOps
from memory.kernels.torch_ops import TorchOps

BUILT = library.PATH.exists()
LEVELS = range(library.load().walkway_best_level() + 1) if BUILT else ()
DTYPES = [torch.float32, torch.bfloat16]
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


def assert_close(out: Tensor, expected: Tensor) -> None:
    """Equal but for float32 rounding, which may tip a bfloat16 by one unit."""
    assert out.dtype == expected.dtype
    bound = 8e-3 if out.dtype == torch.bfloat16 else 2e-6
    torch.testing.assert_close(out.float(), expected.float(), atol=bound / 4, rtol=bound)


def test_the_kernels_are_built_where_there_is_a_compiler() -> None:
    assert BUILT or shutil.which("c++") is None


@needs_kernels
def test_torch_and_the_kernels_share_one_openmp() -> None:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("this system has no /proc")
    # In a process of its own: transformers maps what it finds, sentencepiece's OpenMP too.
    code = (
        "import torch; from memory.kernels.ops import NativeOps; torch.set_num_threads(2); "
        "NativeOps().rms_norm(torch.ones(64, 512), torch.ones(512), 0.0); "
        f"print(open({str(maps)!r}).read())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert len(set(re.findall(r"\S*(?:libgomp|libomp|libiomp)\S*", ran.stdout))) == 1


def rows(width: int, dtype: torch.dtype, count: int = 37, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(count, width, generator=generator)).to(dtype)


def rms_norm(ops: LayerOps, x: Tensor) -> Tensor:
    return ops.rms_norm(x, rows(x.shape[1], x.dtype, 1, seed=1)[0], 1e-5)


def add_rms_norm(ops: LayerOps, x: Tensor) -> Tensor:
    residual = x.flip(1).contiguous()
    out = ops.add_rms_norm(residual, x, rows(x.shape[1], x.dtype, 1, seed=1)[0], 1e-5)
    return torch.cat((residual, out), dim=1)


def silu_and_mul(ops: LayerOps, x: Tensor) -> Tensor:
    return ops.silu_and_mul(x)


KERNELS = [rms_norm, add_rms_norm, silu_and_mul]


@needs_kernels
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [16, 48, 576, 1040])
def test_a_row_kernel_equals_torch(
    level: int, width: int, dtype: torch.dtype, kernel: Callable[[LayerOps, Tensor], Tensor]
) -> None:
    x = rows(width, dtype)
    assert_close(kernel(NativeOps(), x), kernel(TorchOps(), x))


@needs_kernels
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_rows_bits_do_not_depend_on_the_others(
    level: int, dtype: torch.dtype, kernel: Callable[[LayerOps, Tensor], Tensor]
) -> None:
    x = rows(576, dtype, 64)
    together = kernel(NativeOps(), x)
    for row in (0, 5, 63):
        assert torch.equal(kernel(NativeOps(), x[row : row + 1]), together[row : row + 1])


@needs_kernels
def test_silu_is_exact_at_the_ends_of_the_range(level: int) -> None:
    ends = [-1e30, -200.0, -88.0, -0.0, 0.0, 88.0, 200.0, 1e30, torch.nan]
    gate = torch.tensor([ends + [0.0] * 7])
    out = NativeOps().silu_and_mul(torch.cat((gate, torch.ones_like(gate)), dim=1))
    expected = torch.nn.functional.silu(gate)
    torch.testing.assert_close(out, expected, equal_nan=True, atol=1e-36, rtol=2e-6)


@needs_kernels
def test_bfloat16_rounds_to_nearest_even_as_torch_does(level: int) -> None:
    bits = torch.randint(-(2**31), 2**31, (64, 64), generator=torch.Generator().manual_seed(0))
    x = bits.int().view(torch.float32).nan_to_num(0.0, 0.0, 0.0).clamp(-1e30, 1e30)
    high = x.bfloat16()
    residual = high.clone()
    NativeOps().add_rms_norm(
        residual, high.flip(0).contiguous(), torch.ones(64, dtype=torch.bfloat16), 1.0
    )
    assert torch.equal(residual, (high.float() + high.flip(0).float()).bfloat16())


@pytest.mark.parametrize("ops", [TorchOps, *([NativeOps] if BUILT else [])])
@pytest.mark.parametrize("vocab", [1, 17, 1003])
def test_argmax_takes_the_first_and_fails_rows_alone(ops: type[LayerOps], vocab: int) -> None:
    logits = rows(vocab, torch.float32, 9)
    expected = logits.max(dim=1).values
    first, last = logits.clone(), logits.clone()
    logits[1] = 7.0
    logits[2, vocab - 1] = torch.nan
    logits[3] = -torch.inf
    logits[4, vocab // 2] = torch.inf
    logits[5, 0] = torch.nan
    found = ops().argmax(logits).tolist()
    assert found[1:6] == [0, -1, -1, vocab // 2, -1]
    for row in (0, 6, 7, 8):
        assert logits[row, found[row]] == expected[row]
    first[0, 0] = last[0, vocab - 1] = 99.0
    assert ops().argmax(first)[0] == 0
    assert ops().argmax(last)[0] == vocab - 1


@needs_kernels
def test_argmax_is_the_same_at_every_level(level: int) -> None:
    logits = rows(1003, torch.float32, 50).round(decimals=1)
    assert torch.equal(NativeOps().argmax(logits), logits.argmax(dim=1))


def turned(
    backend: CpuAttention | ReferenceAttention, tokens: int, normed: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, and the keys and values that `rope_write` left in the pool."""
    s = backend.spec
    pool = backend.alloc_pool(tokens + 2)
    order = torch.randperm(tokens * s.page_size, generator=torch.Generator().manual_seed(3))
    slots = order[:tokens] + s.page_size
    empty = torch.zeros(1, dtype=torch.int32)
    backend.plan(StepMeta(empty, empty, empty[:0], empty[:0], empty[:0], slots, 0))
    positions = (torch.arange(tokens) * 7) % 50
    table = rows(s.head_dim, torch.float32, 50, seed=4)
    weights = rows(s.head_dim, s.dtype, 2, seed=5)
    rotation = Rotation(table, weights[0], weights[1], 1e-5) if normed else Rotation(table)
    width = (s.num_q_heads + 2 * s.num_kv_heads) * s.head_dim
    q = backend.rope_write(1, rows(width, s.dtype, tokens), positions, rotation)
    page, offset = slots // s.page_size, slots % s.page_size
    if isinstance(backend, CpuAttention):
        pool = pool.transpose(3, 4)
    untouched = torch.ones(pool.shape[0], s.page_size, dtype=torch.bool)
    untouched[page, offset] = False
    assert not pool[:, 0].any()
    assert not pool[:, 1].transpose(1, 2)[untouched].any()
    return q, pool[page, 1, 0, offset], pool[page, 1, 1, offset]


@needs_kernels
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [8, 40, 64, 128])
def test_rotation_and_store_equal_torch(
    level: int, head_dim: int, dtype: torch.dtype, normed: bool
) -> None:
    spec = KVSpec(2, 6, 2, head_dim, 4, dtype)
    native = turned(CpuAttention(spec), 19, normed)
    plain = turned(ReferenceAttention(spec), 19, normed)
    for found, expected in zip(native[:2], plain[:2], strict=True):
        bound = 2e-2 if dtype == torch.bfloat16 else 1e-5
        torch.testing.assert_close(found, expected, atol=bound, rtol=bound)
    assert torch.equal(native[2], plain[2])


@needs_kernels
def test_a_position_outside_the_table_is_refused_and_nothing_written() -> None:
    backend = CpuAttention(KVSpec(1, 2, 1, 8, 4))
    pool = backend.alloc_pool(3)
    one = torch.tensor([0, 1], dtype=torch.int32)
    length = torch.tensor([1], dtype=torch.int32)
    backend.plan(StepMeta(one, one, length, length, length, torch.tensor([4]), 1))
    for position in (-1, 50):
        with pytest.raises(ValueError, match="outside"):
            backend.rope_write(
                0, torch.ones(1, 32), torch.tensor([position]), Rotation(torch.ones(50, 8))
            )
    assert not pool.any()


@needs_kernels
def test_tensors_that_a_kernel_would_misread_are_refused() -> None:
    ops, x, weight = NativeOps(), torch.ones(4, 32), torch.ones(32)
    wrong: list[Callable[[], Tensor]] = [
        lambda: ops.rms_norm(x[:, :20], torch.ones(20), 0.0),
        lambda: ops.rms_norm(x[:, ::2], torch.ones(16), 0.0),
        lambda: ops.rms_norm(x, weight.double(), 0.0),
        lambda: ops.rms_norm(x.double(), weight.double(), 0.0),
        lambda: ops.add_rms_norm(x, x[:2], weight, 0.0),
        lambda: ops.silu_and_mul(torch.ones(4, 24)),
        lambda: ops.argmax(x.bfloat16()),
        lambda: ops.argmax(x[0]),
    ]
    for call in wrong:
        with pytest.raises(ValueError, match="must be"):
            call()
