"""The rules every plan is held to, in O(running + named) and never O(waiting)."""

from collections.abc import Iterator

from schedulers.interface import Eviction, Plan, Refusal, RequestView, Snapshot


def violations(snap: Snapshot, plan: Plan) -> list[str]:
    """What `plan` breaks, one sentence each; empty when it is legal."""
    unknown = [*_wrong_types(plan), *_unknown(snap, plan)]
    if unknown:
        return unknown
    return [*_wrong_tokens(snap, plan), *_wrong_names(snap, plan), *_excess(snap, plan)]


def _wrong_types(plan: Plan) -> Iterator[str]:
    for request, tokens in plan.tokens.items():
        if type(tokens) is not int:
            yield f"{tokens!r} tokens for {request}, which is no int"
    for request, eviction in plan.evict.items():
        if not isinstance(eviction, Eviction):
            yield f"eviction of {request} by {eviction!r}, which is no Eviction"
    for request, refusal in plan.refuse.items():
        if not isinstance(refusal, Refusal):
            yield f"refusal of {request} by {refusal!r}, which is no Refusal"


def _unknown(snap: Snapshot, plan: Plan) -> Iterator[str]:
    for request in plan.tokens:
        if _view(snap, request) is None:
            yield f"tokens for {request}, which neither waits, runs nor is swapped"
    for request in plan.evict:
        if request not in snap.running:
            yield f"eviction of {request}, which does not run"
    for request in plan.refuse:
        if request not in snap.waiting:
            yield f"refusal of {request}, which does not wait"


def _wrong_tokens(snap: Snapshot, plan: Plan) -> Iterator[str]:
    for request, tokens in plan.tokens.items():
        view = _view(snap, request)
        assert view is not None
        pending = snap.pending(view)
        if not 1 <= tokens <= pending:
            yield f"{tokens} tokens for {request}, which has {pending} pending"


def _wrong_names(snap: Snapshot, plan: Plan) -> Iterator[str]:
    for request in plan.evict.keys() & plan.tokens.keys():
        yield f"{request} both computes and is evicted"
    for request in plan.refuse.keys() & plan.tokens.keys():
        yield f"{request} both computes and is refused"
    for request in plan.refuse:
        if snap.waiting[request].output_tokens:
            yield f"refusal of {request}, which has output already"


def _excess(snap: Snapshot, plan: Plan) -> Iterator[str]:
    tokens = sum(plan.tokens.values())
    if tokens > snap.budget:
        yield f"{tokens} tokens exceed the budget of {snap.budget}"
    joining = sum(request not in snap.running for request in plan.tokens)
    rows = len(snap.running) - len(plan.evict) + joining
    if joining and rows > snap.max_rows:
        yield f"{rows} rows exceed the limit of {snap.max_rows}"
    taken = sum(snap.memory.pages_for(request, n) for request, n in plan.tokens.items())
    given = snap.free_pages + sum(snap.memory.pages_from(request) for request in plan.evict)
    if taken > given:
        yield f"{taken} pages exceed the {given} that are free or given back"
    if not plan.tokens and not snap.draining_pages and _somebody_could_run(snap, plan):
        yield "nothing is computed though a request could run"


def _somebody_could_run(snap: Snapshot, plan: Plan) -> bool:
    """Any single admitted request fits the pool alone, so somebody always can."""
    return bool(snap.running or snap.swapped or len(snap.waiting) > len(plan.refuse))


def _view(snap: Snapshot, request: object) -> RequestView | None:
    for place in (snap.running, snap.waiting, snap.swapped):
        view = place.get(request)  # type: ignore[call-overload]
        if view is not None:
            return view  # type: ignore[no-any-return]
    return None
