"""Deficit counters: quanta for all that wait, and nothing for those that do not."""

import pytest

from schedulers.counters import Prices
from schedulers.deficits import Deficits
from schedulers.interface import Served


@pytest.fixture
def deficits() -> Deficits:
    """`a` has a debt of 40, `b` a credit of 10."""
    found = Deficits(Prices(1.0, 2.0), quantum=10.0)
    found.observe({}, ["a", "b"])
    found.refill(["a", "b"])
    found.observe({"a": Served(50, 0)}, ["a", "b"])
    return found


def test_what_is_granted_counts_at_once_and_once(deficits: Deficits) -> None:
    deficits.charge("b", 7)
    assert deficits.of("b") == 3
    deficits.observe({"a": Served(50, 0), "b": Served(7, 0)}, ["a", "b"])
    assert deficits.of("b") == 3


def test_a_refill_gives_all_the_same_until_one_has_credit(deficits: Deficits) -> None:
    deficits.observe({"a": Served(50, 0), "b": Served(35, 0)}, ["a", "b"])
    deficits.refill(["a", "b"])
    assert [deficits.of("a"), deficits.of("b")] == [-10, 5]


@pytest.mark.parametrize(("rounds", "credit"), [(0, -40), (3, -10), (9, 0)])
def test_one_that_comes_again_keeps_its_debt_less_what_it_missed(
    deficits: Deficits, rounds: int, credit: float
) -> None:
    served = {"a": Served(50, 0), "b": Served(10, 0)}
    deficits.observe(served, ["b"])
    for _ in range(rounds):
        deficits.refill(["b"])
        served["b"] = Served(served["b"].input_tokens + 10, 0)
    deficits.observe(served, ["a", "b"])
    assert deficits.of("a") == credit


def test_one_that_comes_again_has_saved_no_credit(deficits: Deficits) -> None:
    deficits.observe({"a": Served(50, 0)}, ["a"])
    deficits.observe({"a": Served(50, 0)}, ["a", "b"])
    assert deficits.of("b") == 0
