"""The questions that a strategy is asked, each on one load or siege. They raise Breach."""

from collections.abc import Callable
from itertools import zip_longest

from bench.conformance.breach import Breach
from bench.conformance.carry import carry
from bench.conformance.conserving import waste
from bench.conformance.drive import Drive
from bench.conformance.loads import Load
from bench.conformance.siege import Besieged, Siege
from bench.conformance.swapping import Swapping, SwappingOptions
from bench.conformance.witness import Decision, Witness
from schedulers.interface import Promise, Scheduler
from service.invariants import check_core
from service.request import Request

Make = Callable[[], Scheduler]


def legal_and_progressing(make: Make, load: Load) -> None:
    """Every plan obeys `schedulers.check`, computes a token when anything could run, and the
    load ends; the core's own invariants are checked with it."""
    carry(load, Witness(make()), audit=check_core)


def deterministic(make: Make, load: Load) -> None:
    """The same load gives the same plans again; and from a rebuild on, the strategy plans as
    a new instance put in its place does, for it was told to forget. Both in this process:
    an order that hangs on the hashes of strings is not found out."""
    first, again = Witness(make()), Witness(make())
    carry(load, first, _rebuild)
    carry(load, again, _rebuild)
    _compare(first, again, "the same load a second time")
    fresh = Witness(make())

    def exchange(drive: Drive) -> None:
        fresh.inner = make()
        _rebuild(drive)

    carry(load, fresh, exchange)
    _compare(first, fresh, f"a new instance since plan {load.turn}, where this one rebuilt")


def resumes_swapped(make: Make, load: Load) -> None:
    """Put in the place of a strategy that swapped many out, it brings them back."""
    witness = Witness(Swapping(SwappingOptions()))

    def take_over(drive: Drive) -> None:
        witness.inner = make()
        _rebuild(drive)

    carry(load, witness, take_over)


def starves_nobody(make: Make, siege: Siege, horizon_s: float) -> None:
    """Requests without a deadline are never without a token for longer than `horizon_s` of
    virtual time, however favoured the requests after them."""
    Besieged(siege, Witness(make()), horizon_s).starve()


def conserves_work(make: Make, load: Load) -> None:
    """No plan wastes (`conserving.waste`)."""
    carry(load, Witness(make(), Promise.WORK_CONSERVING, waste))


def bounds_recompute(make: Make, load: Load, most: int) -> None:
    """No request computes again more than `most` times all the tokens it may come to."""
    witness = Witness(make())
    for request in carry(load, witness).requests.values():
        _bound(request, most, witness)


def bounds_recompute_in_siege(make: Make, siege: Siege, horizon_s: float, most: int) -> None:
    """The same for a request that rivals never stop preempting."""
    witness = Witness(make())
    besieged = Besieged(siege, witness, horizon_s)
    try:
        besieged.starve()
    except Breach as breach:
        if breach.promise is not Promise.NO_STARVATION:
            raise
    for request in besieged.besieged:
        _bound(request, most, witness)


def _rebuild(drive: Drive) -> None:
    drive.core.planner.forget()


def _bound(request: Request, most: int, witness: Witness) -> None:
    tokens = request.prompt_tokens + request.submit.limits.max_tokens
    if request.recomputed_tokens > most * tokens:
        why = (
            f"{request.id} computed {request.recomputed_tokens} tokens again, of at most "
            f"{tokens} that it has, giving way {request.preemptions} times"
        )
        raise Breach(Promise.BOUNDED_RECOMPUTE, why, witness.story())


def _compare(first: Witness, second: Witness, who: str) -> None:
    pairs = zip_longest(first.decisions, second.decisions)
    for number, (one, other) in enumerate(pairs, 1):
        if one != other:
            why = f"plan {number} differs from that of {who}"
            story = [f"once: {_told(one)}", f"then: {_told(other)}"]
            raise Breach(Promise.DETERMINISTIC, why, story)


def _told(decision: Decision | None) -> str:
    return "no plan" if decision is None else f"{decision.now_s:.3f} s: {decision}"
