"""Carries a finite load through, from the first arrival until nobody is left."""

from collections.abc import Callable

from bench.conformance.breach import Breach
from bench.conformance.drive import Audit, Drive, Tempo, unaudited
from bench.conformance.loads import MS, Load
from bench.conformance.witness import Witness
from schedulers.interface import Promise

Turn = Callable[[Drive], None]


def carry(
    load: Load, witness: Witness, turn: Turn | None = None, audit: Audit = unaudited
) -> Drive:
    """Raises Breach, also when the load takes more steps than it may. `turn` is called once,
    before plan number `load.turn`."""
    drive = Drive(load.machine, witness, Tempo(), audit)
    events = _Events(load, drive)
    while events.pending or drive.core.has_work:
        events.happen()
        if turn and witness.plans + 1 >= load.turn:
            turn(drive)
            turn = None
        if not drive.core.has_work:
            drive.now_s = max(drive.now_s, events.next_s)
            continue
        if drive.steps > load.most_steps:
            raise _endless(load, drive, witness)
        drive.step(failing=drive.steps + 1 == load.failing)
    return drive


class _Events:
    """Arrivals and hang-ups in order of time."""

    def __init__(self, load: Load, drive: Drive) -> None:
        self._drive = drive
        come = [(a.at_ms * MS, 0, id, a) for id, a in enumerate(load.arrivals, 1)]
        go = [
            ((a.at_ms + a.stays_ms) * MS, 1, id, a)
            for id, a in enumerate(load.arrivals, 1)
            if a.stays_ms is not None
        ]
        self.pending = sorted([*come, *go], key=lambda event: event[:3], reverse=True)

    @property
    def next_s(self) -> float:
        return self.pending[-1][0] if self.pending else 0.0

    def happen(self) -> None:
        """All that is due."""
        while self.pending and self.next_s <= self._drive.now_s:
            _, leaves, id, arrival = self.pending.pop()
            if leaves:
                self._drive.leave(id)
            else:
                self._drive.submit(id, arrival.caller)


def _endless(load: Load, drive: Drive, witness: Witness) -> Breach:
    core = drive.core
    left = f"{len(core.running)} run, {len(core.waiting)} wait, {len(core.swapped)} are swapped"
    why = f"after {load.most_steps} steps the load has not ended: {left}"
    promise = Promise.RESUMES_SWAPPED if core.swapped else Promise.PROGRESS
    return Breach(promise, why, witness.story())
