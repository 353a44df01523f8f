"""The start-up check of products, over made-up products: it must see what it is for."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from models.invariance import make_invariant
from models.linear import Kernel, Linear, Product, RowPadding

OUTPUTS, INPUTS = 64, 48


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Thousands of small products: a busy neighbour makes every thread's hand-over slow."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def ordered(weight: Tensor, bias: Tensor | None) -> Product:
    """Each row by itself: no row can depend on another."""

    def product(x: Tensor) -> Tensor:
        sums = torch.stack([(row.float() * weight.float()).sum(-1) for row in x])
        return sums.to(x.dtype)

    return product


def off_where(is_wrong: Callable[[Tensor], Tensor]) -> Kernel:
    """A product whose rows are a bit off where `is_wrong` (bool [rows] for x) says."""

    def kernel(weight: Tensor, bias: Tensor | None) -> Product:
        def product(x: Tensor) -> Tensor:
            out = x @ weight.T
            return torch.where(is_wrong(x)[:, None], torch.nextafter(out, out + 1), out)

        return product

    return kernel


def linear(kernel: Kernel, dtype: torch.dtype = torch.float32, max_rows: int = 512) -> Linear:
    # Small whole numbers: every sum is exact, whatever order torch makes it in.
    ones = torch.arange(OUTPUTS * INPUTS).remainder(3).reshape(OUTPUTS, INPUTS).to(dtype)
    return Linear(ones, None, kernel, max_rows)


def whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check's own rows are whole numbers as well, of 512 different ones."""
    random = torch.randn

    def rounded(*shape: int, generator: torch.Generator) -> Tensor:
        return (random(*shape, generator=generator) * 4).round()

    monkeypatch.setattr(torch, "randn", rounded)


def test_one_row_of_512_that_differs_when_it_is_alone_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole_numbers(monkeypatch)
    marked = linear(off_where(lambda x: torch.zeros(len(x), dtype=torch.bool)))
    seen: list[Tensor] = []

    def is_wrong(x: Tensor) -> Tensor:
        if not seen:
            seen.append(x[317].clone())  # of the first product, which is of the most rows
        return (x == seen[0]).all(1) & (len(x) == 1)

    marked = linear(off_where(is_wrong))
    assert make_invariant([marked]) is None
    assert marked.padding == RowPadding(least=2)


@pytest.mark.parametrize(
    ("wrong_sizes", "padding"),
    [
        ({1}, RowPadding(least=2)),
        ({1, 2, 3}, RowPadding(multiple=4)),
        ({1, 2, 3, 4}, RowPadding(multiple=8)),
        ({*range(1, 16), 17}, RowPadding(multiple=16)),
        ({17}, RowPadding(multiple=4)),
        ({257}, RowPadding(multiple=4)),
    ],
    ids=str,
)
def test_the_cheapest_padding_that_avoids_the_sizes_that_differ_is_set(
    monkeypatch: pytest.MonkeyPatch, wrong_sizes: set[int], padding: RowPadding
) -> None:
    whole_numbers(monkeypatch)
    product = linear(off_where(lambda x: torch.full((len(x),), len(x) in wrong_sizes)))
    assert make_invariant([product]) is None
    assert product.padding == padding


def test_a_row_that_differs_by_its_place_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    whole_numbers(monkeypatch)
    tail = linear(off_where(lambda x: torch.arange(len(x)) >= 32 * (len(x) // 32)))
    assert make_invariant([tail]) is None
    assert tail.padding == RowPadding(multiple=32)
    odd = linear(off_where(lambda x: torch.arange(len(x)) % 2 == 1))
    fault = make_invariant([odd])
    assert fault == f"products of {INPUTS} x {OUTPUTS} depend on their batch on this machine"
    assert odd.padding == RowPadding()


@pytest.mark.parametrize("max_rows", [32, 512])
def test_a_sum_in_another_order_is_found_though_rounding_to_bfloat16_hides_most_of_it(
    max_rows: int,
) -> None:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(OUTPUTS, 1536, generator=generator).bfloat16()

    def kernel(weight: Tensor, bias: Tensor | None) -> Product:
        wide = weight.float()

        def in_halves(x: Tensor) -> Tensor:
            first, second = x[:, :768].float(), x[:, 768:].float()
            return first @ wide[:, :768].T + second @ wide[:, 768:].T

        def product(x: Tensor) -> Tensor:
            if len(x) == 1:
                return in_halves(x).bfloat16()
            return torch.cat([row[None].float() @ wide.T for row in x]).bfloat16()

        return product

    product = Linear(weight, None, kernel, max_rows)
    x = torch.randn(512, 1536, generator=generator).bfloat16()
    hidden = sum(torch.equal(product(row[None]), product(x[:2])[:1]) for row in x[:1])
    assert hidden == 1, "the first row alone must show no difference, or this proves little"
    assert make_invariant([product]) is None
    assert product.padding == RowPadding(least=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_without_fault_is_not_padded(dtype: torch.dtype) -> None:
    product = linear(ordered, dtype, max_rows=32)
    assert make_invariant([product]) is None
    assert product.padding == RowPadding()
