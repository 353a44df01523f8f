"""How hypothesis makes loads and sieges: small ones, and what is usual shrinks to nothing.

The machine is drawn first, and nothing is sized by what is drawn after it: then a case can
lose a request while all else stays, which is how it becomes small.
"""

from dataclasses import replace

from hypothesis import strategies as st

from bench.conformance.loads import OWN_PROMPT, Arrival, Caller, Load, Machine
from bench.conformance.siege import Siege

_priorities = st.sampled_from([4, 0, 9, 15])
_tenants = st.sampled_from(["a", "b", "z"])
_deadlines = st.none() | st.integers(1, 120)
_prompts = st.sampled_from([OWN_PROMPT, 1, 2])
_turns = st.integers(2, 9)
_instants_ms = st.sampled_from([0, 3, 8, 20, 50])  # few, so that many come at once


def callers(deadlines: bool = True, most_out: int = 8) -> st.SearchStrategy[Caller]:
    """Requests of up to a dozen prompt tokens."""
    deadline = _deadlines if deadlines else st.none()
    return st.builds(
        Caller,
        prompt_tokens=st.integers(1, 12),
        max_tokens=st.integers(0, most_out),
        prompt=_prompts,
        priority=_priorities,
        tenant=_tenants,
        deadline_ms=deadline,
        first_token_ms=deadline,
    )


def machines(
    pages: int, host_pages: int, budget: int, least_pages: int = 1
) -> st.SearchStrategy[Machine]:
    """Pools and steps of so much at most."""
    return st.builds(
        Machine,
        pages=st.integers(least_pages, pages),
        page_size=st.sampled_from([2, 1, 4]),
        host_pages=st.integers(0, host_pages),
        rows=st.integers(1, 4),
        budget=st.integers(1, budget),
        watermark=st.integers(0, 2),
    )


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """Anything: bursts and gaps, hang-ups, deadlines, a step that raises."""
    machine = draw(machines(pages=20, host_pages=10, budget=12))
    turn, failing = draw(_turns), draw(st.none() | st.integers(1, 9))
    stays = st.none() | st.integers(0, 40)
    arrival = st.builds(Arrival, _instants_ms, callers(), stays)
    arrivals = draw(st.lists(arrival, min_size=1, max_size=9))
    return Load(machine, _in_order(machine, arrivals), turn, failing)


@st.composite
def abandoned(draw: st.DrawFn) -> Load:
    """A load in whose middle another strategy has swapped requests out. Nobody hangs up or
    expires, so each has to be brought back."""
    machine = replace(draw(machines(pages=20, host_pages=0, budget=12)), host_pages=80)
    turn = draw(_turns)
    arrival = st.builds(Arrival, _instants_ms, callers(deadlines=False))
    arrivals = draw(st.lists(arrival, min_size=2, max_size=8))
    return Load(machine, _in_order(machine, arrivals), turn)


@st.composite
def tight(draw: st.DrawFn) -> Load:
    """Long answers in a pool that holds one of them and little more."""
    machine = draw(machines(pages=14, host_pages=10, budget=40, least_pages=6))
    arrival = st.builds(Arrival, _instants_ms, callers(deadlines=False, most_out=24))
    arrivals = draw(st.lists(arrival, min_size=2, max_size=6))
    return Load(machine, _in_order(machine, arrivals))


@st.composite
def sieges(draw: st.DrawFn) -> Siege:
    """Victims without a deadline, their rivals in any favour. One victim alone against ever
    new tenants: by fair shares those are owed so much that a second waits past the horizon."""
    machine = draw(machines(pages=14, host_pages=8, budget=12))
    fresh_tenants = draw(st.booleans())
    return Siege(
        machine=machine,
        victim=_fitting(machine, draw(_callers_in_sieges(most_out=4))),
        rival=_fitting(machine, draw(_callers_in_sieges(most_out=6))),
        ahead=draw(st.integers(0, 4)),
        crowd=draw(st.integers(1, 4)),
        fresh_tenants=fresh_tenants,
        rival_slack=draw(st.none() | st.integers(2, 30)),
        debt=draw(st.integers(0, 2)),
        behind=0 if fresh_tenants else draw(st.integers(0, 2)),
    )


def _callers_in_sieges(most_out: int) -> st.SearchStrategy[Caller]:
    return st.builds(
        Caller,
        prompt_tokens=st.integers(1, 8),
        max_tokens=st.integers(1, most_out),
        priority=_priorities,
        tenant=_tenants,
    )


def _in_order(machine: Machine, arrivals: list[Arrival]) -> tuple[Arrival, ...]:
    fitting = [replace(a, caller=_fitting(machine, a.caller)) for a in arrivals]
    return tuple(sorted(fitting, key=lambda arrival: arrival.at_ms))


def _fitting(machine: Machine, caller: Caller) -> Caller:
    """Cut down to what the pool holds alone, as the service refuses the rest. (A pool for
    the largest request instead would let no case lose that while it is made smaller.)"""
    slots = machine.pages * machine.page_size
    prompt = min(caller.prompt_tokens, slots)
    out = min(caller.max_tokens, slots - prompt + 1)  # the last token needs no slot
    return replace(caller, prompt_tokens=prompt, max_tokens=out)
