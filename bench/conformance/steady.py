"""What it is to hold for hours: the questions on loads that last. They raise Breach.

Horizons of the built-in strategies are a minute or two, and half an hour is ten times each;
`walkway check-scheduler --hours` makes it longer.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from bench.conformance.breach import Breach
from bench.conformance.hours import Course, Lasting, Stream
from bench.conformance.loads import Caller
from bench.conformance.reach import reachable
from bench.conformance.weighed import Weighed
from schedulers.interface import Promise, Scheduler

Make = Callable[[], Scheduler]

FIRST_S = 30.0  # a queue has formed by then, and no request has waited long
SMALL = 0.05  # of the service: of a class that had less, a few tokens are much
DECAY = 2.0
GROWTH, SPARE_CALLS = 4.0, 500.0
WEIGHED_S = 9.0  # at the end of each stretch
AWAY, BACK_S = 2 / 3, 240.0  # of the load's time; after it
CROWD = 6
ROUND_S, ROUNDS = 500.0, 3
HELD = 0.5  # objects for each request that has ended
HOURS = 0.5  # from here on memory is asked about too: bounded ones have filled up

USUAL, LONG = Caller(4, 3, tenant="a"), Caller(8, 6, tenant="c")
URGENT, OTHER = Caller(4, 3, priority=12, tenant="b"), Caller(4, 3, tenant="b")


@dataclass(frozen=True, slots=True)
class Hours:
    """A load and what is asked on it."""

    load: Lasting
    ask: Callable[[Make, Lasting], None]

    def script(self) -> Iterator[str]:
        return self.load.script()


def cases(hours: float) -> list[Hours]:
    """All of them."""
    seconds = 3600 * hours
    overload = (
        Stream("urgent", URGENT, per_s=0.3),
        Stream("usual", USUAL, per_s=2.0),
        Stream("long", LONG, per_s=1.0),
    )
    comes_back = (
        Stream("stayed", USUAL, waiting=CROWD),
        Stream("away", OTHER, waiting=CROWD, from_s=AWAY * seconds),
    )
    passing = Stream("passing", Caller(1, 1), waiting=CROWD, fresh_tenants=True)
    found = [
        Hours(Lasting(overload, seconds), keeps_shares),
        Hours(Lasting(comes_back, AWAY * seconds + BACK_S), saves_no_credit),
    ]
    if hours >= HOURS:
        found.append(Hours(Lasting((passing,), ROUNDS * ROUND_S), forgets))
    return found


def keeps_shares(make: Make, load: Lasting) -> None:
    """Under three times the load that can be served, no class's share of the service falls to
    less than half of what it was, in stretches of time each twice as long as the one before;
    nor do plans take more and more."""
    weighed = Weighed(make())
    course = Course(load, weighed)
    course.until(FIRST_S)
    most: dict[str, float] = {}
    calls: list[float] = []
    story: list[str] = []
    end_s = 2 * FIRST_S
    while end_s <= load.seconds:
        shares = _shares(course, end_s - WEIGHED_S)
        calls.append(weighed.during(partial(course.until, end_s)))
        story.append(f"until {end_s:g} s: {_told(shares)}, {calls[-1]:.0f} calls a plan")
        _expect_no_decay(most, shares, story)
        most = {name: max(share, most.get(name, 0.0)) for name, share in shares.items()}
        end_s *= 2
    if calls[-1] > GROWTH * calls[0] + SPARE_CALLS:
        waiting = len(course.drive.core.waiting)
        why = f"a plan made {calls[0]:.0f} calls, and {calls[-1]:.0f} when {waiting} waited"
        raise Breach(Promise.STEADY, why, story)


def saves_no_credit(make: Make, load: Lasting) -> None:
    """A tenant that was away for long does not take more from one that stayed than if it had
    been there all along."""
    stayed, away = load.streams
    course = Course(load, make())
    course.until(away.from_s)
    kept = course.until(away.from_s + BACK_S)[stayed.name]
    both = Lasting((stayed, replace(away, from_s=0.0)), BACK_S)
    usual = Course(both, make()).until(BACK_S)[stayed.name]
    if kept * DECAY < usual:
        why = (
            f"a tenant came back after {away.from_s:g} s, and in the next {BACK_S:g} s the one "
            f"that had stayed got {kept} tokens; it gets {usual} where neither was away"
        )
        raise Breach(Promise.STEADY, why, both.script())


def forgets(make: Make, load: Lasting) -> None:
    """What a strategy holds does not grow with the requests that have come and gone: more than
    once, as something bounded may still fill up."""
    scheduler = make()
    course = Course(load, scheduler)
    held, ended = [], []
    for number in range(1, ROUNDS + 1):
        course.until(number * load.seconds / ROUNDS)
        course.drain()
        held.append(reachable(scheduler))
        ended.append(len(course.drive.requests))
    grown = zip(_steps(held), _steps(ended), strict=True)
    if all(objects > HELD * requests for objects, requests in grown):
        pairs = zip(ended, held, strict=True)
        story = [f"after {n} requests, all ended: {objects} objects" for n, objects in pairs]
        raise Breach(Promise.STEADY, "it holds on to requests that have ended", story)


def _shares(course: Course, until_s: float) -> dict[str, float]:
    tokens = course.until(until_s)
    whole = sum(tokens.values())
    return {name: count / whole if whole else 0.0 for name, count in tokens.items()}


def _told(shares: dict[str, float]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items())


def _expect_no_decay(
    most: dict[str, float], shares: dict[str, float], story: Sequence[str]
) -> None:
    for name, share in shares.items():
        before = most.get(name, 0.0)
        if before >= SMALL and share * DECAY < before:
            why = (
                f"{name} fell to {share:.0%} of the service, from {before:.0%}, under a load "
                "that stayed the same"
            )
            raise Breach(Promise.STEADY, why, story)


def _steps(values: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise(values)]
