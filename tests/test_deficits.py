"""Deficit counters: quanta for all that wait, and nothing for those that do not."""

import pytest

from schedulers.counters import SPARE, Prices
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


def test_a_quantum_far_below_what_a_float_resolves_ends_a_refill(deficits: Deficits) -> None:
    served = {"a": Served(10**20, 0), "b": Served(10**20, 0)}
    deficits.observe(served, ["a", "b"])
    deficits.refill(["a", "b"])
    assert deficits.of("a") > 0 or deficits.of("b") > 0


def test_debts_of_those_that_left_are_not_looked_at_in_every_step() -> None:
    found = Deficits(Prices(1.0, 2.0), quantum=1.0)
    gone = [f"tenant {n}" for n in range(5 * SPARE)]
    found.observe({}, ["stays", *gone])
    served = {tenant: Served(10**6, 0) for tenant in gone}
    found.observe(served, ["stays", *gone])
    looked = 0
    inner = found._forget

    def forget() -> None:
        nonlocal looked
        looked += 1
        inner()

    found._forget = forget  # type: ignore[method-assign]
    for _ in range(9):
        found.observe(served, ["stays"])
    assert looked == 1


def test_those_that_left_without_a_debt_are_forgotten() -> None:
    found = Deficits(Prices(1.0, 2.0), quantum=1.0)
    for n in range(5 * SPARE):
        found.observe({}, ["stays", f"tenant {n}"])
    assert len(found._given) < 3 * SPARE
