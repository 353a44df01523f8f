"""Loads that last: hours of virtual time, in which what a strategy gives each class of requests
has to stay what it is.

Nothing about the load changes while it lasts, so neither may the service. That is how a
strategy is found out that holds for minutes: one whose order rests on how long requests have
waited, for instance, once all of them have waited long. Three times the longest horizon of a
built-in strategy is some minutes; steps are a second long, so that an hour is 3,600 of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.conformance.breach import Breach
from bench.conformance.drive import Drive, Tempo
from bench.conformance.loads import Caller, Machine
from schedulers.interface import Promise, Scheduler
from service.planner import BrokenScheduler
from service.request import Request, State

STEP_S = 1.0
TEMPO = Tempo(STEP_S, STEP_S / 1000, STEP_S / 1000)
MACHINE = Machine(pages=64, page_size=4, host_pages=16, rows=4, budget=12)


@dataclass(frozen=True, slots=True)
class Stream:
    """Callers of one class, `per_s` of them a second, evenly; or with `waiting` as many that
    always wait, the next when one is admitted. From `from_s` on; with `fresh_tenants` each is
    a tenant of its own."""

    name: str
    caller: Caller
    per_s: float = 0.0
    waiting: int = 0
    from_s: float = 0.0
    fresh_tenants: bool = False

    def __str__(self) -> str:
        how = f"{self.waiting} always wait" if self.waiting else f"{self.per_s:g} come a second"
        since = f" from {self.from_s:g} s on" if self.from_s else ""
        fresh = ", each its own tenant" if self.fresh_tenants else ""
        return f"{self.name}: {how}{since}, each {self.caller}{fresh}"


@dataclass(frozen=True, slots=True)
class Lasting:
    """A load of several classes that lasts for `seconds`."""

    streams: tuple[Stream, ...]
    seconds: float

    def script(self) -> Iterator[str]:
        """One line an event."""
        yield str(MACHINE)
        yield from map(str, self.streams)
        yield f"for {self.seconds:g} s, steps of {STEP_S:g} s"


class Course:
    """A lasting load under way."""

    def __init__(self, load: Lasting, scheduler: Scheduler) -> None:
        self.drive = Drive(MACHINE, scheduler, TEMPO, audit=None)
        self._load = load
        self._sent: dict[str, list[Request]] = {stream.name: [] for stream in load.streams}

    def until(self, at_s: float) -> dict[str, int]:
        """Go on until then. Output tokens of each class meanwhile. Raises Breach for a plan
        that is illegal."""
        before = self._served()
        while self.drive.now_s < at_s:
            for stream in self._load.streams:
                self._send(stream)
            self._step()
        return {name: after - before[name] for name, after in self._served().items()}

    def drain(self) -> None:
        """Run without further arrivals until all requests have ended."""
        while self.drive.core.has_work:
            self._step()

    def _step(self) -> None:
        try:
            self.drive.step()
        except BrokenScheduler as error:
            raise Breach(Promise.LEGAL, str(error)) from error

    def _send(self, stream: Stream) -> None:
        now_s, sent = self.drive.now_s, self._sent[stream.name]
        if now_s < stream.from_s:
            return
        if stream.waiting:
            waiting = sum(request.state is State.WAITING for request in sent[-stream.waiting :])
            due = stream.waiting - waiting
        else:
            due = int((now_s - stream.from_s) * stream.per_s) + 1 - len(sent)
        for _ in range(due):
            id = len(self.drive.requests) + 1
            tenant = f"t{id}" if stream.fresh_tenants else stream.caller.tenant
            sent.append(self.drive.submit(id, replace(stream.caller, tenant=tenant)))

    def _served(self) -> dict[str, int]:
        return {
            name: sum(request.output_tokens for request in sent)
            for name, sent in self._sent.items()
        }
