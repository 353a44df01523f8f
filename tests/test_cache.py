"""What `cache` promises: longest cached prefix first, fair between tenants, an end to every
wait within one."""

from itertools import count

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bench.conformance.kit import Effort, check
from schedulers import hits
from schedulers.cache import MAX_TENANTS, Cache, CacheOptions
from schedulers.hits import LOOKS
from schedulers.interface import Promise, Served
from service.messages import Finish, Submit
from service.strategy import make_scheduler
from tests.cores import make_submit
from tests.watched import Scene

INPUT, OUTPUT = 1.0, 2.0
OWN = 1000  # prompts of their own begin at this


def request(id: int, tokens: int = 8, prefix: int | None = None, **other: object) -> Submit:
    """Requests with the same `prefix` agree in all but their last two tokens."""
    begins = OWN + id if prefix is None else prefix
    other.setdefault("max_tokens", 2)
    return make_submit(id, [begins] * (tokens - 2) + [OWN + id] * 2, **other)


def scene(rows: int = 1, pages: int = 100, budget: int = 20, **options: object) -> Scene:
    return Scene("cache", options, rows=rows, pages=pages, budget=budget)


def started(found: Scene) -> list[int]:
    order: list[int] = []
    while found.core.has_work:
        order += found.step()
    return list(dict.fromkeys(order))


def test_the_longest_cached_prefix_goes_first_and_of_equals_the_oldest() -> None:
    found = scene()
    found.submit(request(1, 8, prefix=1), request(2, 14, prefix=2))
    started(found)
    found.submit(request(3), request(4, 8, prefix=1), request(5, 14, prefix=2), request(6))
    assert started(found) == [5, 4, 3, 6]


def test_a_prefix_that_is_computed_meanwhile_counts_for_those_that_wait_already() -> None:
    found = scene()
    found.submit(request(1, prefix=1), request(2), request(3), request(4, prefix=1))
    assert started(found) == [1, 4, 2, 3]


def test_a_prefix_that_the_cache_has_forgotten_counts_no_more() -> None:
    found = scene(pages=9)
    for first in (request(1, 8, prefix=1, max_tokens=1), request(2, 6, prefix=2, max_tokens=1)):
        found.submit(first)
        started(found)
    found.step(request(3, 2, max_tokens=11))
    found.submit(request(4, 8, prefix=1), request(5, 6, prefix=2))
    found.step()
    cached = found.core._arithmetic.cached_tokens
    assert [cached(4), cached(5)] == [6, 4]
    assert started(found) == [3, 5, 4]


def test_every_so_many_admissions_are_of_the_oldest() -> None:
    found, ids = scene(oldest_each=4), count(10)
    found.submit(request(1, prefix=1))
    started(found)
    found.submit(request(2))
    order: list[int] = []
    while 2 not in order and len(order) < 40:
        found.submit(
            *(request(next(ids), prefix=1) for _ in range(3 - len(found.core.waiting)))
        )
        order += found.step()
    assert len(set(order)) == 4


def test_each_plan_asks_the_cache_about_few() -> None:
    found = scene(rows=1)
    found.submit(request(0, max_tokens=30))
    found.submit(*(request(id) for id in range(1, 200)))
    asked: list[int] = []
    memory = found.core._arithmetic
    inner = memory.cached_tokens

    def ask(id: int) -> int:
        asked.append(id)
        return inner(id)

    memory.cached_tokens = ask
    found.step()
    asked.clear()
    for turn in range(1, 5):
        found.step()
        assert len(asked) == LOOKS * turn
    assert len(set(asked)) == len(asked), "in turn"


def test_requests_that_left_before_the_cache_was_asked_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hits, "SPARE", LOOKS)
    found, ids = scene(budget=3), count(1)
    found.submit(request(0, 3, max_tokens=30))
    queue = found.strategy._inner._queue
    for _ in range(9):
        came = [next(ids) for _ in range(3 * LOOKS)]
        found.step(*(request(id, 9) for id in came))
        for id in came:
            found.core.end(id, Finish.CANCELLED, found.now_s)
    assert len(queue._turns) == len(queue._in_turn) <= 2 * 7 * LOOKS


class Tenants(Scene):
    """Tenants with any number of requests each."""

    def __init__(self, options: dict[str, object], **core: int) -> None:
        super().__init__("cache", options, **{"rows": 4, "pages": 80, "budget": 24} | core)
        self._ids = count()

    def ask(self, tenant: str, times: int, prompt: int = 3, answer: int = 6) -> list[int]:
        """All with one prompt: after the first, the cache has most of it."""
        ids = [next(self._ids) for _ in range(times)]
        begins = sum(tenant.encode())
        for id in ids:
            self.submit(make_submit(id, [begins] * prompt, max_tokens=answer, tenant=tenant))
        return ids

    def cost(self, tenant: str) -> float:
        served = self.strategy.served.get(tenant, Served())
        return served.input_tokens * INPUT + served.output_tokens * OUTPUT


@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    weight=st.sampled_from([0.5, 1.0, 3.0]),
    quantum=st.sampled_from([1.0, 20.0, 60.0]),
    heavy=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    light=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    rows=st.integers(1, 4),
    head_start=st.integers(0, 30),
)
def test_two_backlogged_tenants_differ_by_no_more_than_the_bound(
    weight: float,
    quantum: float,
    heavy: tuple[int, int],
    light: tuple[int, int],
    rows: int,
    head_start: int,
) -> None:
    """Over every stretch in which both have requests waiting: 2 (Q + U) of the docstring."""
    found = Tenants({"weights": {"a": weight}, "quantum": quantum}, rows=rows)
    found.ask("a", 30, *heavy)
    for _ in range(head_start):
        found.step()
    found.ask("b", 30, *light)
    most = max(
        rows * (p * INPUT + a * OUTPUT) / w for (p, a), w in [(heavy, weight), (light, 1.0)]
    )
    gaps = []
    for _ in range(40):
        gaps.append(found.cost("a") / weight - found.cost("b"))
        found.step()
        if {r.tenant for r in found.core.waiting.values()} != {"a", "b"}:
            break
    assert max(gaps) - min(gaps) <= 2 * (quantum + most)


def test_a_light_tenant_goes_ahead_of_a_flood_whose_prefix_is_cached() -> None:
    found = Tenants({"quantum": 10.0}, rows=2)
    found.ask("flood", 50, prompt=8)
    for _ in range(8):
        found.step()
    [id] = found.ask("light", 1, prompt=8)
    for _ in range(8):
        found.step()
    assert found.core.requests.get(id) is None or id in found.core.running


def test_a_tenant_that_was_away_has_saved_nothing_up() -> None:
    found = Tenants({"quantum": 10.0}, rows=1)
    found.ask("a", 60)
    found.ask("b", 1)
    for _ in range(90):
        found.step()
    before = found.cost("a"), found.cost("b")
    assert before[0] > 5 * before[1]
    found.ask("b", 40)
    for _ in range(60):
        found.step()
    gained = found.cost("a") - before[0], found.cost("b") - before[1]
    assert abs(gained[0] - gained[1]) <= 2 * (10 + 3 * INPUT + 6 * OUTPUT)


def test_with_very_many_tenants_each_has_its_turn() -> None:
    found = Tenants({"quantum": 1.0}, rows=1, pages=400)
    tenants = [f"tenant {n}" for n in range(2 * MAX_TENANTS)]
    for tenant in tenants:
        found.ask(tenant, 2, answer=1)
    for _ in tenants:
        found.step()
    assert all(found.core._ledger.served.settle()[tenant].input_tokens for tenant in tenants)


def test_ever_new_tenants_do_not_keep_one_in_debt_waiting() -> None:
    effort = Effort(examples=20, only=frozenset({Promise.NO_STARVATION}))
    options = {"quantum": 5.0}
    report = check("cache", options, lambda: make_scheduler("cache", options), effort)
    assert not report.broken


@pytest.mark.parametrize(
    "options",
    [
        {"quantum": 0.0},
        {"oldest_each": 0},
        {"input_weight": 0.0},
        {"output_weight": -1.0},
        {"weights": {"a": 0.0}},
    ],
)
def test_bad_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Cache(CacheOptions(**options))
