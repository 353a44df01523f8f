"""What `fair` promises: equal cost by weight, nobody saves up, nothing lies idle."""

from itertools import count

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from schedulers.counters import Counters, Prices
from schedulers.fair import FairOptions
from schedulers.interface import Served
from service.messages import Finish
from tests.cores import make_submit
from tests.watched import Scene

INPUT, OUTPUT = 1.0, 2.0


class Tenants(Scene):
    """Tenants with any number of requests each."""

    def __init__(self, weights: dict[str, float] | None = None, **core: int) -> None:
        core = {"rows": 4, "pages": 80, "budget": 24} | core
        super().__init__("fair", {"weights": weights or {}}, **core)
        self._ids = count()

    def ask(self, tenant: str, times: int = 1, prompt: int = 3, answer: int = 6) -> list[int]:
        ids = [next(self._ids) for _ in range(times)]
        for id in ids:
            self.submit(make_submit(id, [id] * prompt, max_tokens=answer, tenant=tenant))
        return ids

    def cost(self, tenant: str, weight: float = 1.0) -> float:
        served = self.strategy.served.get(tenant, Served())
        return (served.input_tokens * INPUT + served.output_tokens * OUTPUT) / weight


@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    weight=st.sampled_from([0.5, 1.0, 3.0]),
    heavy=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    light=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    rows=st.integers(1, 4),
    head_start=st.integers(0, 30),
)
def test_two_backlogged_tenants_differ_by_no_more_than_the_bound(
    weight: float, heavy: tuple[int, int], light: tuple[int, int], rows: int, head_start: int
) -> None:
    """Over every stretch in which both have requests waiting: 2U of the docstring."""
    found = Tenants({"a": weight}, rows=rows)
    found.ask("a", 25, *heavy)
    for _ in range(head_start):
        found.step()
    found.ask("b", 25, *light)
    most = max(
        rows * (p * INPUT + a * OUTPUT) / w for (p, a), w in [(heavy, weight), (light, 1.0)]
    )
    gaps = []
    for _ in range(40):
        gaps.append(found.cost("a", weight) - found.cost("b"))
        found.step()
        if {r.tenant for r in found.core.waiting.values()} != {"a", "b"}:
            break
    assert max(gaps) - min(gaps) <= 2 * most


def test_weights_give_shares() -> None:
    found = Tenants({"a": 3.0})
    found.ask("a", 90)
    found.ask("b", 90)
    for _ in range(120):
        found.step()
    assert found.cost("a") == pytest.approx(3 * found.cost("b"), rel=0.15)


def test_a_light_tenant_is_next_though_another_floods() -> None:
    found = Tenants(rows=2)
    found.ask("flood", 50)
    for _ in range(4):
        found.step()
    [id] = found.ask("light")
    joined: set[int] = set()
    while not joined:
        joined = set(found.step()) - {0, 1}
    assert id in joined


def test_a_tenant_that_was_away_has_saved_nothing_up() -> None:
    found = Tenants(rows=1)
    found.ask("a", 40)
    [first] = found.ask("b")
    for _ in range(60):
        found.step()
    assert first not in found.core.requests
    before = found.cost("a"), found.cost("b")
    assert before[0] > 5 * before[1]
    found.ask("b", 40)
    for _ in range(60):
        found.step()
    gained = found.cost("a") - before[0], found.cost("b") - before[1]
    assert abs(gained[0] - gained[1]) <= 2 * (3 * INPUT + 6 * OUTPUT)


def test_a_tenant_that_only_ran_meanwhile_has_saved_nothing_up_either() -> None:
    found = Tenants(rows=2)
    [slow] = found.ask("b", answer=90)
    found.step()
    found.ask("a", 60)
    for _ in range(60):
        found.step()
    assert slow in found.core.running
    before = found.cost("a"), found.cost("b")
    found.ask("b", 60)
    for _ in range(60):
        found.step()
    gained = found.cost("a") - before[0], found.cost("b") - before[1]
    assert abs(gained[0] - gained[1]) <= 4 * (3 * INPUT + 6 * OUTPUT)


@pytest.mark.parametrize("debt", [0, 3])
def test_ever_new_tenants_do_not_keep_an_old_one_waiting(debt: int) -> None:
    found = Tenants(rows=1)
    found.ask("old", debt)
    while found.core.has_work:
        found.step()
    new = count()
    found.ask(f"a{next(new)}", 3)
    [id] = found.ask("old")
    for _ in range(200):
        while len(found.core.waiting) < 4:
            found.ask(f"a{next(new)}")
        if id in found.step():
            return
    raise AssertionError("the old tenant starves")


def counters(**served: int) -> Counters:
    """Tenants of these names want something, and then were served so many prompt tokens."""
    found = Counters(Prices(1.0, 1.0))
    for tenant in served:
        found.enter([tenant])
    found.observe({tenant: Served(tokens) for tenant, tokens in served.items()})
    return found


def test_of_equal_counters_the_tenant_that_came_first_is_next() -> None:
    assert counters(z=0, a=0).least() == "z"
    assert counters(z=5, a=0).least() == "a"


def test_a_newcomer_stands_where_the_last_grant_left_its_tenant() -> None:
    found = counters(a=0, b=0)
    found.charge("a", 10)
    found.enter(["new"])
    assert (found.of("b"), found.of("new")) == (0.0, 10.0)


def test_a_newcomer_stands_with_the_last_when_nobody_wants_anything() -> None:
    found = counters(a=0)
    found.charge("a", 10)
    found.leave(["a"])
    found.enter(["new"])
    assert found.of("new") == 10.0


def test_a_tenant_that_pauses_keeps_its_debt() -> None:
    found = counters(a=50, b=0)
    found.leave(["a"])
    found.enter(["a"])
    assert (found.of("a"), found.of("b"), found.least()) == (50.0, 0.0, "b")


def test_whoever_had_long_answers_waits_after_a_pause_until_the_other_had_as_much() -> None:
    found = Tenants(rows=1)
    found.ask("a", answer=40)
    while found.core.has_work:
        found.step()
    debt = found.cost("a")
    found.ask("b", 40)
    found.step()
    [back] = found.ask("a")
    while back not in found.step():
        assert back in found.core.waiting
    assert abs(found.cost("b") - debt) <= 3 * INPUT + 6 * OUTPUT


def test_a_tenant_is_charged_every_token_of_a_chunk_at_once() -> None:
    """In one step: what a long prompt cost counts before the next to join is chosen."""
    found = Tenants(rows=4, budget=24)
    [long, longer] = found.ask("a", 2, prompt=9)
    short = found.ask("b", 4, prompt=3)
    assert found.step() == [long, *short[:3]]
    assert longer in found.core.waiting


def test_what_was_granted_but_never_served_is_forgotten() -> None:
    found = counters(a=0, b=0)
    found.charge("a", 5)
    assert (found.of("a"), found.least()) == (5.0, "b")
    found.observe({})
    assert (found.of("a"), found.least()) == (0.0, "a")


def test_a_tenant_that_is_passed_by_is_back_in_the_next_step() -> None:
    found = counters(a=0)
    found.pass_by("a")
    assert found.least() is None
    found.observe({})
    assert found.least() == "a"


def test_a_share_that_nobody_wants_goes_to_whoever_does() -> None:
    found = Tenants({"b": 100.0}, rows=4)
    found.ask("a", 9)
    assert len(found.step()) == 4


def test_a_tenants_requests_keep_their_order() -> None:
    found = Tenants(rows=1)
    ids = found.ask("a", 4, answer=2)
    found.ask("b", 4, answer=2)
    order: list[int] = []
    while found.core.has_work:
        order += found.step()
    assert [id for id in dict.fromkeys(order) if id in ids] == ids


def test_under_pressure_whoever_had_most_gives_way() -> None:
    found = Tenants(rows=3, pages=8)
    [much] = found.ask("a", prompt=6, answer=8)
    [more] = found.ask("b", prompt=2, answer=14)
    while not found.plan.evict if found.strategy.plans else True:
        found.step()
        costs = {much: found.cost("a"), more: found.cost("b")}
    assert found.plan.evict.keys() == {max(costs, key=costs.__getitem__)}


class Asked(dict[str, float]):
    """Counts how often a tenant's weight is asked for: once for each counter read."""

    times = 0

    def get(self, tenant: str, default: float = 1.0) -> float:  # type: ignore[override]
        self.times += 1
        return default


def test_a_step_does_not_look_at_every_tenant() -> None:
    found = Tenants(rows=2)
    for number in range(300):
        found.ask(f"t{number}", answer=30)
    found.step()
    prices = found.strategy._inner._prices
    asked = Asked()
    object.__setattr__(prices, "weights", asked)
    found.ask("t7")
    found.core.end(0, Finish.CANCELLED, 0.0)
    for _ in range(3):
        found.step()
    assert 0 < asked.times < 40


@pytest.mark.parametrize(
    "bad", [{"weights": {"a": 0.0}}, {"input_weight": -1.0}, {"output_weight": float("inf")}]
)
def test_options_without_sense_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        FairOptions(**bad)  # type: ignore[arg-type]


def test_tenants_that_do_not_come_back_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedulers.counters.SPARE", 8)
    found = Tenants()
    for visit in range(300):
        found.ask(f"tenant {visit}", prompt=3, answer=1)
        found.step()
    counters = found.strategy._inner._counters
    assert len(counters._lift) < 60
    assert len(counters._heap) < 60
