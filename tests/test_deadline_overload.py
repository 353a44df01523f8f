"""What `deadline` makes of more than the engine can do, simulated, and how it tells who is
likely to make it."""

import random

import pytest

from bench.simulation.catalogue import find_profile
from bench.simulation.choice import Choice
from bench.simulation.demand import Demand, Load
from bench.simulation.engine import simulate
from bench.trace import Arrival
from tests.test_deadline import request, scene
from tests.watched import Scene

CAPACITY_PER_S, SERVED_S = 3.2, 9.5  # of the `cpu` profile with such requests


def overload(times: float, seed: int = 1, seconds: float = 45.0) -> Load:
    """Requests with deadlines of two to four times what one takes in a full batch."""
    draw = random.Random(seed)
    at_s, demands = 0.0, []
    while at_s < seconds:
        at_s += draw.expovariate(times * CAPACITY_PER_S)
        arrival = Arrival(at_s, draw.randint(30, 120), draw.randint(24, 64))
        deadline_s = draw.uniform(2, 4) * SERVED_S
        demands.append(Demand(arrival, deadline_s=deadline_s))
    return Load("overload", demands)


def short_beside_long(times: float) -> Load:
    """Half of them short, with deadlines, half of them long, without."""
    draw = random.Random(1)
    at_s, demands = 0.0, []
    for due in [True, False] * 60:
        at_s += draw.expovariate(times * CAPACITY_PER_S)
        output = draw.randint(8, 24) if due else draw.randint(100, 200)
        deadline_s = draw.uniform(0.5, 1.2) * SERVED_S if due else None
        demands.append(
            Demand(Arrival(at_s, draw.randint(30, 120), output), deadline_s=deadline_s)
        )
    return Load("short beside long", demands)


def met(load: Load, name: str) -> float:
    """Of those that have a deadline."""
    records = simulate(load, find_profile("cpu"), Choice(name, name)).records
    due = [r.answered for r, d in zip(records, load.demands, strict=True) if d.deadline_s]
    return sum(due) / len(due)


@pytest.mark.parametrize("seed", [2, 3])
def test_at_twice_the_capacity_clearly_more_deadlines_are_met_than_by_fcfs(seed: int) -> None:
    load = overload(2.0, seed)
    assert met(load, "deadline") > met(load, "fcfs") + 0.1


def test_long_answers_without_a_deadline_say_nothing_of_short_ones_that_have_one() -> None:
    load = short_beside_long(1.5)
    assert met(load, "deadline") > 0.9 > met(load, "fcfs")


def test_within_the_capacity_every_deadline_is_met() -> None:
    assert met(overload(0.9), "deadline") == 1.0


def slow_engine(rows: int) -> Scene:
    """One request runs, and a step takes 10 s, far more than the measured costs say."""
    found = scene(rows=rows)
    found.step(request(0, tokens=3, max_tokens=30))
    for _ in range(3):
        found.step(after_s=10.0)
    return found


def test_who_is_not_likely_to_make_it_goes_behind_those_who_are() -> None:
    found = slow_engine(rows=2)
    ran = found.step(request(1, 80.0, min_tokens=6), request(2, 900.0, 9), after_s=10.0)
    assert ran == [0, 2]
    assert not found.plan.refuse


def test_who_is_not_likely_to_make_it_is_tried_where_there_is_room() -> None:
    found = slow_engine(rows=3)
    ran = found.step(request(1, 80.0, min_tokens=6), request(2, 900.0), after_s=10.0)
    assert sorted(ran) == [0, 1, 2]


def test_an_exchange_forgets_how_long_steps_took() -> None:
    found = slow_engine(rows=2)
    found.core.planner.forget()
    ran = found.step(request(1, 80.0, min_tokens=6), request(2, 900.0, 90), after_s=10.0)
    assert ran == [0, 1]
