"""Work conservation, defined so that every order of service can keep it."""

from collections.abc import Iterator

from schedulers.interface import Plan, RequestId, RequestView, Snapshot


def waste(snap: Snapshot, plan: Plan) -> str | None:
    """What a plan leaves unused, or None.

    Left out is who was neither refused nor given all of its pending tokens. A plan wastes
    when it leaves somebody out though *each* of those left out could have had a token more
    within what the plan leaves of the budget, of the rows and of the pages; one that joins
    must find pages for all it has pending, beside the watermark and a page for each that
    runs, or be alone. So whoever the strategy puts first among them could have gone
    on: who may not overtake whom is its own affair, as is a step that evicts (a victim is
    left out and cannot be served).
    """
    if plan.evict or sum(plan.tokens.values()) >= snap.budget:
        return None
    left = list(_left_out(snap, plan))
    rows = snap.max_rows - len(snap.running.keys() | plan.tokens.keys())
    taken = sum(snap.memory.pages_for(request, n) for request, n in plan.tokens.items())
    pages = snap.free_pages - taken
    if not left or not all(_fits(snap, plan, view, rows, pages) for view in left):
        return None
    names = ", ".join(str(view.id) for view in left[:8])
    tokens = snap.budget - sum(plan.tokens.values())
    return (
        f"{tokens} tokens of the budget, {rows} rows and {pages} pages are left, and each of "
        f"those left out ({names}) could have had a token more"
    )


def _left_out(snap: Snapshot, plan: Plan) -> Iterator[RequestView]:
    for place in (snap.running, snap.swapped, snap.waiting):
        for view in place.values():
            if view.id not in plan.refuse and _granted(plan, view.id) < snap.pending(view):
                yield view


def _fits(snap: Snapshot, plan: Plan, view: RequestView, rows: int, pages: int) -> bool:
    granted = _granted(plan, view.id)
    joins = view.id not in snap.running
    if joins and not granted and rows < 1:
        return False
    others = snap.running.keys() | plan.tokens.keys()
    if joins and not granted and others:
        keep = snap.watermark_pages + len(others)
        return snap.memory.pages_for(view.id, snap.pending(view)) <= pages - keep
    more = snap.memory.pages_for(view.id, granted + 1)
    if granted:
        more -= snap.memory.pages_for(view.id, granted)
    return more <= pages


def _granted(plan: Plan, request: RequestId) -> int:
    return plan.tokens.get(request, 0)
