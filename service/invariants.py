"""What always holds of a core between two calls; asserted after each when checking is on."""

from models.batch import IN_FLIGHT
from service.core import Core
from service.request import State


def check_core(core: Core) -> None:
    """Both pools are sound, each request is in exactly one place and holds what its state
    says, and nobody else holds anything. O(everything)."""
    pages, host = core.residency.pages, core.residency.host
    pages.check()
    host.check()
    places = {
        State.WAITING: set(core.waiting),
        State.RUNNING: set(core.running),
        State.SWAPPED: set(core.swapped),
        State.DRAINING: set(core.draining),
    }
    assert sum(map(len, places.values())) == len(core.requests), "in no place or in two"
    for id, request in core.requests.items():
        assert id in places[request.state], f"{id} is {request.state} but elsewhere"
        if request.state is State.WAITING:
            assert not pages.holds(id) and not host.holds(id), f"{id} waits with pages"
            assert not request.computed, f"{id} waits with computed tokens"
        if request.state is State.RUNNING:
            slots = len(pages.table(id)) * core.residency.page_size
            assert request.computed <= slots, f"{id} has more tokens than slots"
            assert request.computed <= request.known, f"{id} computed the unknown"
        if request.state is State.SWAPPED:
            assert host.holds(id) and not pages.holds(id), f"{id} is swapped elsewhere"
        if request.state is State.DRAINING:
            assert request.in_flight, f"{id} drains for nothing"
        if request.owed:
            assert request.state is State.DRAINING, f"{id} is owed an end but goes on"
        assert IN_FLIGHT not in request.tokens[:-1], f"{id} goes on from an unknown token"
        if request.tokens[-1] == IN_FLIGHT:
            assert request.in_flight, f"{id} waits for a token that nobody draws"
        if request.in_flight:
            assert pages.holds(id) or host.holds(id), f"{id} is touched without pages"
    assert pages.owners() <= core.requests.keys(), "pages of a request that is gone"
    assert host.owners() <= core.requests.keys(), "host pages of a request that is gone"
