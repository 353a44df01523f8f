"""The matrix product in C++ with packed weights: exact sums, and bits that depend on nothing
but the row."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from memory.kernels import library
from memory.kernels.matmul import PackedProduct
from models import linear
from models.invariance import make_invariant
from models.linear import Linear, RowPadding, cpu_kernel

BUILT = library.PATH.exists()
LEVELS = range(library.load().walkway_best_level() + 1) if BUILT else ()
DTYPES = [torch.float32, torch.bfloat16]
ROWS = (1, 2, 3, 5, 6, 7, 8, 31, 32, 33, 64, 512)
SHAPES = [(96, 64), (64, 160), (160, 576), (33, 7), (1, 1), (47, 161)]
"""Outputs and inputs: whole units, and what is left over in each of them."""

pytestmark = pytest.mark.skipif(not BUILT, reason="the extension was not built")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """A busy neighbour makes every thread's hand-over slow."""
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


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def operands(outputs: int, inputs: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Weight, bias and 512 rows."""
    return (
        random(outputs, inputs, dtype=dtype, seed=1),
        random(outputs, dtype=dtype, seed=2),
        random(512, inputs, dtype=dtype, seed=3),
    )


def chained(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """float32 sums of the inputs in their order. Products of bfloat16 are exact in float32,
    so this is what fused multiply-adds give, to the bit."""
    sums = torch.zeros(len(x), len(weight))
    for k in range(weight.shape[1]):
        sums += x[:, k].float()[:, None] * weight[:, k].float()
    return sums if bias is None else sums + bias.float()


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_bfloat16_is_the_rounded_float32_sum_in_order(
    level: int, outputs: int, inputs: int, biased: bool
) -> None:
    weight, bias, x = operands(outputs, inputs, torch.bfloat16)
    given_bias = bias if biased else None
    expected = chained(x, weight, given_bias).bfloat16()
    product = PackedProduct(weight, given_bias)
    for rows in ROWS:
        assert torch.equal(product(x[:rows]), expected[:rows])


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_float32_is_within_the_rounding_of_its_sums(
    level: int, outputs: int, inputs: int, biased: bool
) -> None:
    weight, bias, x = operands(outputs, inputs, torch.float32)
    exact, size = x.double() @ weight.double().T, x.double().abs() @ weight.double().abs().T
    if biased:
        exact, size = exact + bias.double(), size + bias.double().abs()
    product = PackedProduct(weight, bias if biased else None)
    for rows in (3, 512):
        wrong = (product(x[:rows]).double() - exact[:rows]).abs()
        assert (wrong <= 2**-24 * (inputs + 1) * size[:rows]).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("outputs", "inputs"), [(160, 576), (47, 161)])
def test_a_rows_bits_depend_neither_on_its_place_nor_on_the_rows_beside_it(
    level: int, outputs: int, inputs: int, dtype: torch.dtype
) -> None:
    weight, bias, x = operands(outputs, inputs, dtype)
    product = PackedProduct(weight, bias)
    whole = product(x)
    for rows in ROWS:
        for start in {0, 1, 97, 512 - rows}:
            end = min(start + rows, 512)
            assert torch.equal(product(x[start:end]), whole[start:end])


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_no_bit(dtype: torch.dtype) -> None:
    weight, bias, x = operands(2048, 161, dtype)
    product = PackedProduct(weight, bias)
    alone = {rows: product(x[:rows]) for rows in ROWS}
    torch.set_num_threads(2)
    for rows in (*ROWS, 512, 512, 512):  # long enough that both threads are at it
        assert torch.equal(product(x[:rows]), alone[rows])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 70), st.integers(1, 40), st.integers(1, 80), st.sampled_from(DTYPES))
def test_any_shape_is_multiplied(
    outputs: int, inputs: int, rows: int, dtype: torch.dtype
) -> None:
    weight = random(outputs, inputs, dtype=dtype, seed=1)
    x = random(rows, inputs, dtype=dtype, seed=2)
    found = PackedProduct(weight, None)(x)
    if dtype == torch.bfloat16:
        assert torch.equal(found, chained(x, weight, None).bfloat16())
    else:
        torch.testing.assert_close(found, x @ weight.T, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 4, 33, 70])
def test_what_is_not_a_number_stays_in_its_row_and_column(
    level: int, rows: int, dtype: torch.dtype
) -> None:
    weight, _, x = operands(47, 161, dtype)
    weight[5, 160] = torch.inf
    x = x[:rows].clone()
    x[rows // 2, 3] = torch.nan
    found = PackedProduct(weight, None)(x)
    nan, infinite = found.isnan(), found.isinf()
    assert nan[rows // 2].all()
    assert nan.sum() == 47
    assert infinite.sum() == rows - 1
    assert infinite[:, 5].sum() == rows - 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 4, 33, 70])
def test_what_an_earlier_product_left_in_the_scratch_is_not_read(
    level: int, rows: int, dtype: torch.dtype
) -> None:
    weight, _, x = operands(47, 10, dtype)
    whole, odd = PackedProduct(weight, None), PackedProduct(weight[:, :9], None)
    expected = odd(x[:rows, :9].contiguous())
    whole(torch.full_like(x[:rows], torch.nan))
    assert torch.equal(odd(x[:rows, :9].contiguous()), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_byte_behind_the_result_is_written_and_none_of_it_left(
    level: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, bias, x = operands(47, 9, dtype)
    product = PackedProduct(weight, bias)
    plain = [product(x[:rows]) for rows in (1, 5, 70)]
    for expected in plain:
        room = torch.full((expected.numel() + 64,), 7.0, dtype=dtype)
        view = room[: expected.numel()].view(expected.shape)
        with monkeypatch.context() as patch:
            patch.setattr(torch, "empty", lambda *_, view=view, **__: view)
            product(x[: len(expected)])
        assert torch.equal(view, expected)
        assert (room[expected.numel() :] == 7.0).all()


def test_a_changed_or_dropped_weight_changes_nothing() -> None:
    weight, bias, x = operands(64, 32, torch.bfloat16)
    product = PackedProduct(weight, bias)
    before = product(x)
    weight.zero_()
    bias.zero_()
    assert torch.equal(product(x), before)


def test_no_rows_give_no_rows() -> None:
    product = PackedProduct(torch.ones(64, 32), None)
    assert product(torch.ones(0, 32)).shape == (0, 64)


def test_tensors_that_the_kernel_would_misread_are_refused() -> None:
    product, x = PackedProduct(torch.ones(64, 32), None), torch.ones(4, 64)
    for wrong in (x, x[:, :32], x[:, ::2], x[:, :32].contiguous().bfloat16()):
        with pytest.raises(ValueError, match="x must be"):
            product(wrong)
    for weight in (torch.ones(8, 0), torch.ones(8, 8).half()):
        with pytest.raises(ValueError, match="a weight must be"):
            PackedProduct(weight, None)
    with pytest.raises(ValueError, match="bias must be"):
        PackedProduct(torch.ones(64, 32), torch.ones(63))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_start_up_check_needs_no_padding(dtype: torch.dtype) -> None:
    weight, bias, _ = operands(160, 161, dtype)
    product = Linear(weight, bias, PackedProduct)
    assert make_invariant([product]) is None
    assert product.padding == RowPadding()


def test_what_onednn_refuses_is_multiplied_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_onednn_takes", lambda dtype: dtype == torch.float32)
    assert cpu_kernel(torch.bfloat16) == (PackedProduct, "native, fp32 sums")
    monkeypatch.setattr(linear, "_native_level", lambda: None)
    assert cpu_kernel(torch.bfloat16)[1] == "onednn fp32 of bf16 values"
    assert cpu_kernel(torch.float32)[1] == "onednn"
    monkeypatch.setattr(linear, "_onednn_takes", lambda dtype: False)
    assert cpu_kernel(torch.bfloat16)[1] == "torch"


def test_float32_stays_with_onednn_where_the_kernel_was_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linear, "_onednn_takes", lambda dtype: True)
    for level, expected in (("avx512", "onednn"), ("avx2", "native, fp32 sums")):
        monkeypatch.setattr(linear, "_native_level", lambda level=level: level)
        assert cpu_kernel(torch.float32)[1] == expected
    assert cpu_kernel(torch.bfloat16)[1] == "onednn"
