"""What `auto` means, by device."""

from dataclasses import astuple

import pytest
from pydantic import ValidationError

from service.build import build
from service.settings import Engine
from service.step_sizes import step_sizes
from tests.wire import make_settings

GIB = 2**30


@pytest.mark.parametrize(
    ("device", "gib", "sizes"),
    [
        ("cpu", None, (32, 512, 1)),
        ("cuda", 141, (256, 8192, 2)),
        ("cuda:1", 40, (256, 8192, 2)),
        ("cuda", 39.5, (256, 4096, 2)),
        ("cuda", None, (256, 4096, 2)),
    ],
)
def test_auto_depends_on_the_device(
    device: str, gib: float | None, sizes: tuple[int, ...]
) -> None:
    found = step_sizes(Engine(), device, None if gib is None else int(gib * GIB))
    assert astuple(found) == sizes


@pytest.mark.parametrize(
    ("named", "sizes"),
    [
        ({"max_rows": 8}, (8, 512, 1)),
        ({"max_rows": 600}, (600, 1200, 1)),
        ({"max_step_tokens": 32}, (31, 32, 1)),
        ({"max_step_tokens": 2}, (1, 2, 1)),
        ({"max_rows": 4, "max_step_tokens": 5, "steps_in_flight": 2}, (4, 5, 2)),
    ],
)
def test_what_is_named_stays_and_auto_fits_it(
    named: dict[str, int], sizes: tuple[int, ...]
) -> None:
    assert astuple(step_sizes(Engine(**named), "cpu")) == sizes


def test_two_that_are_named_and_do_not_fit_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"must be above max_rows \(32\)"):
        Engine(max_rows=32, max_step_tokens=32)


def test_ranks_take_one_step_at_a_time() -> None:
    assert step_sizes(Engine(tensor_parallel=2), "cuda").steps_in_flight == 1


def test_an_engine_and_its_front_end_have_the_numbers() -> None:
    built = build(make_settings(engine={"max_rows": 600}))
    assert (built.ready.max_rows, built.ready.max_step_tokens) == (600, 1200)
    assert built.core.steps_in_flight == 1
