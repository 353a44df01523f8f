"""An adversary for no starvation: a few requests, and rivals that never stop coming.

The rivals are as favoured as they like (priority, tenant, deadline, length), and whenever
one is admitted the next comes, so that `crowd` of them always wait. That is an overload
without end, yet those who come later than the strategy's ageing lets them go ahead are never
more than `crowd`: so an ageing strategy has a bound, and it does not depend on how long the
siege lasts. Steps are long, a few hundred to the horizon, so that ageing of minutes is seen.
The besieged are a class: the first of them must be served, and the class go on to be served
until none of it is left, so one favour done to the oldest does not do.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.conformance.breach import Breach
from bench.conformance.drive import Drive, Tempo
from bench.conformance.loads import Caller, Machine
from bench.conformance.witness import Witness
from schedulers.interface import Promise
from service.request import Request, State

STEPS = 320  # to the horizon


@dataclass(frozen=True, slots=True)
class Siege:
    """`debt` requests like the victim's are served first, so its tenant has had something.
    `ahead` rivals are there before the victim, `behind` requests like it come after it; with
    `fresh_tenants` each rival is a tenant of its own. `rival_slack`: steps until a rival's
    deadline."""

    machine: Machine
    victim: Caller
    rival: Caller
    ahead: int
    crowd: int
    fresh_tenants: bool = False
    rival_slack: int | None = None
    debt: int = 0
    behind: int = 0

    def script(self) -> Iterator[str]:
        """One line an event."""
        yield str(self.machine)
        before, number = self.debt, self.debt + self.ahead + 1
        if before:
            yield f"1 to {before} are served, each {self.victim}"
        if self.ahead:
            yield f"{before + 1} to {number - 1} come, each {self._rivals()}"
        yield f"{number} comes: {self.victim}"
        if self.behind:
            yield f"{self.behind} more like it come"
        yield f"then {self.crowd} rivals always wait, the next comes when one is admitted,"
        yield f"each {self._rivals()}"

    def _rivals(self) -> str:
        tenants = ", each its own tenant" if self.fresh_tenants else ""
        slack = self.rival_slack
        return str(self.rival) + tenants + (f", deadline in {slack} steps" if slack else "")


class Besieged:
    """A siege under way. `horizon_s` of virtual time is the most that those besieged, the
    victim and those like it, may be without a token."""

    def __init__(self, siege: Siege, witness: Witness, horizon_s: float) -> None:
        self._siege = siege
        self._witness = witness
        self._horizon_s = horizon_s
        step_s = horizon_s / STEPS
        cost_s = step_s / 1000
        self._slack_ms = round(step_s * 1000 * (siege.rival_slack or 0)) or None
        self.drive = Drive(siege.machine, witness, Tempo(step_s, cost_s, cost_s), None)
        for _ in range(siege.debt):
            self.drive.submit(self._number(), siege.victim)
        while self.drive.core.has_work:
            self.drive.step()
        for _ in range(siege.ahead):
            self._send_rival()
        self.besieged = [
            self.drive.submit(self._number(), siege.victim) for _ in range(1 + siege.behind)
        ]

    def starve(self) -> None:
        """Until all besieged have ended. Raises Breach when they starve."""
        tokens, since_s = 0, self.drive.now_s
        while left := [one for one in self.besieged if one.state is not State.DONE]:
            self._top_up()
            self.drive.step()
            had, tokens = tokens, sum(one.output_tokens for one in self.besieged)
            if tokens > had:
                since_s = self.drive.now_s
            elif self.drive.now_s - since_s > self._horizon_s:
                raise self._starved(left[0], self.drive.now_s - since_s)

    def _top_up(self) -> None:
        core = self.drive.core
        waiting = len(core.waiting) - sum(one.id in core.waiting for one in self.besieged)
        for _ in range(self._siege.crowd - waiting):
            self._send_rival()

    def _send_rival(self) -> None:
        rival, number = self._siege.rival, self._number()
        if self._siege.fresh_tenants:
            rival = replace(rival, tenant=f"t{number}")
        self.drive.submit(number, replace(rival, deadline_ms=self._slack_ms))

    def _number(self) -> int:
        return len(self.drive.requests) + 1

    def _starved(self, victim: Request, waited_s: float) -> Breach:
        last = self.besieged[-1].id
        served = sum(
            1 for id, one in self.drive.requests.items() if id > last and one.output_tokens
        )
        which = "next" if victim.output_tokens else "first"
        why = (
            f"{victim.id} ({victim.state.value}) waited {waited_s:.0f} s of virtual "
            f"time for its {which} token, while {served} that came later were served"
        )
        return Breach(Promise.NO_STARVATION, why, self._witness.story())
