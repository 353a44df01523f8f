"""Stands between the core and a strategy: judges each plan and remembers it."""

import traceback
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from bench.conformance.breach import Breach
from bench.conformance.patience import Overlong, patience
from schedulers.check import violations
from schedulers.interface import (
    ALWAYS,
    Plan,
    Promise,
    RequestId,
    RequestView,
    Scheduler,
    Snapshot,
)

PATIENCE_S = 20.0
REMEMBERED = 6

Judge = Callable[[Snapshot, Plan], str | None]


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan as a value that can be compared, in the strategy's own order."""

    now_s: float
    tokens: tuple[tuple[RequestId, int], ...]
    evict: tuple[tuple[RequestId, object], ...]
    refuse: tuple[tuple[RequestId, object], ...]
    on_share: tuple[RequestId, ...] = ()

    def __str__(self) -> str:
        parts = [f"computes {dict(self.tokens)}"]
        parts += [f"evicts {request} ({_how(how)})" for request, how in self.evict]
        parts += [f"refuses {request}" for request, _ in self.refuse]
        parts += [f"{request} on the share" for request in self.on_share]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class WitnessOptions:
    """A witness has none."""


class Witness:
    """Asks `inner`, which may be exchanged between two plans. Raises Breach for a plan that
    is illegal or stalls, and for one that a judge finds `promise` broken by."""

    Options: ClassVar[type[WitnessOptions]] = WitnessOptions
    promises: ClassVar[frozenset[Promise]] = ALWAYS

    def __init__(
        self, inner: Scheduler, promise: Promise = Promise.LEGAL, judge: Judge | None = None
    ) -> None:
        self.inner = inner
        self.plans = 0
        self.decisions: list[Decision] = []
        self._promise = promise
        self._judge = judge
        self._last: deque[tuple[int, float, Plan]] = deque(maxlen=REMEMBERED)

    def plan(self, snap: Snapshot) -> Plan:
        """The strategy's answer, when nothing is wrong with it."""
        before = _digest(snap)
        plan = self._ask(snap)
        self.plans += 1
        if not isinstance(plan, Plan):
            raise self._breach(snap, Promise.LEGAL, f"plan() returned {plan!r}, no Plan")
        self._last.append((self.plans, snap.now_s, plan))
        if _digest(snap) != before:
            raise self._breach(snap, Promise.LEGAL, "plan() changed what it was given")
        self._hold(snap, plan)
        self.decisions.append(_decision(snap.now_s, plan))
        return plan

    def story(self) -> tuple[str, ...]:
        """The last plans."""
        return tuple(_line(*last) for last in self._last)

    def _hold(self, snap: Snapshot, plan: Plan) -> None:
        faults, stalls = violations(snap, plan), _stalls(snap, plan)
        if len(faults) > stalls:  # a stall is one of the violations
            raise self._breach(snap, Promise.LEGAL, "; ".join(faults))
        if stalls:
            only_swapped = not snap.running and not snap.waiting
            promise = Promise.RESUMES_SWAPPED if only_swapped else Promise.PROGRESS
            raise self._breach(snap, promise, "; ".join(faults))
        fault = self._judge(snap, plan) if self._judge else None
        if fault:
            raise self._breach(snap, self._promise, fault)

    def _ask(self, snap: Snapshot) -> Plan:
        try:
            with patience(PATIENCE_S):
                return self.inner.plan(snap)
        except Overlong:
            why = f"plan() had not returned after {PATIENCE_S:.0f} s"
            raise self._breach(snap, Promise.PROGRESS, why) from None
        except (Exception, SystemExit) as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            why = f"plan() raised {error!r} ({frame.name}, {frame.filename}:{frame.lineno})"
            raise self._breach(snap, Promise.LEGAL, why) from error

    def _breach(self, snap: Snapshot, promise: Promise, why: str) -> Breach:
        return Breach(promise, why, [*self.story(), "of:", *_state(snap)])


def _decision(now_s: float, plan: Plan) -> Decision:
    evict, refuse = tuple(plan.evict.items()), tuple(plan.refuse.items())
    tokens, on_share = tuple(plan.tokens.items()), tuple(sorted(plan.on_share))
    return Decision(now_s, tokens, evict, refuse, on_share)


def _line(number: int, now_s: float, plan: Plan) -> str:
    try:
        said = str(_decision(now_s, plan))
    except (AttributeError, TypeError, ValueError):  # of the wrong types, as the breach says
        said = repr(plan)
    return f"{now_s:.3f} s: plan {number} {said}"


def _how(eviction: object) -> str:
    mode, cause = getattr(eviction, "mode", None), getattr(eviction, "cause", None)
    return ", ".join(str(getattr(part, "value", part)) for part in (mode, cause))


def _stalls(snap: Snapshot, plan: Plan) -> bool:
    """Nothing is computed though somebody could run."""
    could = snap.running or snap.swapped or len(snap.waiting) > len(plan.refuse)
    return bool(could) and not plan.tokens and not snap.draining_pages


def _digest(snap: Snapshot) -> Hashable:
    """All that a strategy could reach and change. Copies of views compare by value; live
    ones, of big loads, are taken on trust."""
    views = (tuple(place.values()) for place in (snap.waiting, snap.running, snap.swapped))
    changes = (tuple(snap.arrived), tuple(snap.left))
    return (*(tuple(map(hash, part)) for part in views), *changes, tuple(snap.served.items()))


def _state(snap: Snapshot) -> Iterator[str]:
    """What the plan was made of, for people."""
    places: dict[str, Mapping[RequestId, RequestView]] = {
        "waiting": snap.waiting,
        "running": snap.running,
        "swapped": snap.swapped,
    }
    for name, place in places.items():
        for view in place.values():
            yield (
                f"{view.id} {name}: {snap.pending(view)} pending, {view.computed} computed, "
                f"{view.output_tokens} out, given way {view.preemptions} times"
            )
    yield (
        f"{snap.free_pages} pages free, {snap.host_free_pages} on the host; "
        f"{snap.budget} tokens, {snap.max_rows} rows"
    )
