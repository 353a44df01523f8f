"""Room for an urgent request at the cost of others, or no harm to anybody."""

from collections.abc import Iterable

from schedulers.draft import Draft
from schedulers.interface import RequestView
from schedulers.running import GiveWay


def make_room(
    draft: Draft,
    view: RequestView,
    victims: Iterable[RequestView],
    give_way: GiveWay,
) -> bool:
    """Evict as few of `victims`, the first ones first, as give `view` a row and the pages
    that it joins at. Evicts nobody when all of them together do not give enough."""
    if not draft.allowance(view):
        return False
    rows, pages, repins = draft.rows, draft.pages, 0
    chosen: list[RequestView] = []
    left = iter(victims)
    while rows <= 0 or pages < draft.admission_pages(view, repins, len(chosen)):
        victim = next(left, None)
        if victim is None:
            return False
        gives, kept = draft.gives(victim), draft.repins(view, victim)
        if rows <= 0 or gives > kept:
            chosen.append(victim)
            rows, pages, repins = rows + 1, pages + gives, repins + kept
    for victim in chosen:
        draft.evict(victim, give_way(victim))
    return True
