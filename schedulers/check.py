"""The rules every plan is held to, in O(running + named) and never O(waiting)."""

from collections.abc import Iterator, Set
from typing import cast

from schedulers.interface import (
    Cause,
    Eviction,
    Mode,
    Plan,
    Refusal,
    RequestId,
    Snapshot,
)


def violations(snap: Snapshot, plan: Plan) -> list[str]:
    """What `plan` breaks, one sentence each; empty when it is legal."""
    faults = [*_wrong_rows(snap, plan), *_wrong_evictions(snap, plan)]
    faults += _wrong_refusals(snap, plan)
    faults += _wrong_share(plan)
    return faults or list(_excess(snap, plan))


def _wrong_rows(snap: Snapshot, plan: Plan) -> Iterator[str]:
    running = snap.running
    for request, tokens in plan.tokens.items():
        view = running.get(request)
        pending = view.known - view.computed if view else _pending_beside(snap, request)
        if pending is None:
            yield f"tokens for {request}, which neither waits, runs nor is swapped"
        elif type(tokens) is not int:
            yield f"{tokens!r} tokens for {request}, which is no int"
        elif not 1 <= tokens <= pending:
            yield f"{tokens} tokens for {request}, which has {pending} pending"


def _pending_beside(snap: Snapshot, request: object) -> int | None:
    """Of a request that waits or is swapped."""
    id = cast(RequestId, request)  # whatever it is, asking does no harm
    view = snap.waiting.get(id) or snap.swapped.get(id)
    return snap.pending(view) if view else None


def _wrong_evictions(snap: Snapshot, plan: Plan) -> Iterator[str]:
    for request, eviction in plan.evict.items():
        if request not in snap.running:
            yield f"eviction of {request}, which does not run"
        elif not _is_eviction(eviction):
            yield f"eviction of {request} by {eviction!r}, which is no sound Eviction"
        elif request in plan.tokens:
            yield f"{request} both computes and is evicted"


def _wrong_refusals(snap: Snapshot, plan: Plan) -> Iterator[str]:
    for request, refusal in plan.refuse.items():
        if request not in snap.waiting:
            yield f"refusal of {request}, which does not wait"
        elif not isinstance(refusal, Refusal) or not _is_time(refusal.estimate_s):
            yield f"refusal of {request} by {refusal!r}, which is no sound Refusal"
        elif request in plan.tokens:
            yield f"{request} both computes and is refused"
        elif snap.waiting[request].output_tokens:
            yield f"refusal of {request}, which has output already"


def _wrong_share(plan: Plan) -> Iterator[str]:
    if not isinstance(plan.on_share, Set):
        yield f"on_share is {plan.on_share!r}, which is no set"
        return
    for request in plan.on_share:
        if request not in plan.tokens:
            yield f"{request} is on the share and computes nothing"


def _is_eviction(found: object) -> bool:
    return (
        isinstance(found, Eviction)
        and isinstance(found.mode, Mode)
        and isinstance(found.cause, Cause)
        and all(s is None or _is_time(s) for s in (found.swap_s, found.recompute_s))
    )


def _is_time(seconds: object) -> bool:
    """Of Python's own numbers: those of numpy do not travel to the front end."""
    return type(seconds) in (int, float)


def _excess(snap: Snapshot, plan: Plan) -> Iterator[str]:
    memory, running = snap.memory, snap.running
    tokens = sum(plan.tokens.values())
    if tokens > snap.budget:
        yield f"{tokens} tokens exceed the budget of {snap.budget}"
    joining = sum(request not in running for request in plan.tokens)
    rows = len(running) - len(plan.evict) + joining
    if joining and rows > snap.max_rows:
        yield f"{rows} rows exceed the limit of {snap.max_rows}"
    taken = sum(map(memory.pages_for, plan.tokens, plan.tokens.values()))
    given = snap.free_pages + sum(map(memory.pages_from, plan.evict))
    if taken > given:
        yield f"{taken} pages exceed the {given} that are free or given back"
    if not plan.tokens and not snap.draining_pages and _somebody_could_run(snap, plan):
        yield "nothing is computed though a request could run"


def _somebody_could_run(snap: Snapshot, plan: Plan) -> bool:
    """Any single admitted request fits the pool alone, so somebody always can. While nobody
    has pages yet, turning some away is progress too: there are ever fewer."""
    if plan.refuse and not (snap.running or snap.swapped):
        return False
    return bool(snap.running or snap.swapped or len(snap.waiting) > len(plan.refuse))
