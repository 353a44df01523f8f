"""Carries plans out: moves requests and their pages, and writes the batch."""

from models.batch import Row, StepBatch
from schedulers.interface import Eviction, Mode, Plan
from service.ledger import Ledger
from service.places import Places
from service.request import DRAINING, RUNNING, SWAPPED, Move, Request
from service.residency import Pairs, Residency
from service.step import Step


class Carrier:
    """From a legal plan to a step in flight, and back when the step returned."""

    def __init__(self, places: Places, residency: Residency, ledger: Ledger) -> None:
        self._places = places
        self._residency = residency
        self._ledger = ledger

    def carry_out(self, plan: Plan, now_s: float) -> Step:
        """Evict, pin all cached prefixes, take pages. A row that comes up short all the same
        (its plan counted a page both as a victim's and as cached) is left out and counted.
        All whom the step touches are in flight from here on."""
        requests, running = self._places.requests, self._places.running
        step = Step(StepBatch(rows=[]), [], [], [])
        swap_out: Pairs = []
        for id, how in plan.evict.items():
            swap_out += self._evict(requests[id], how, step, now_s)
        for id in plan.tokens:
            if id not in running:
                self._residency.pin(requests[id])
        rows: list[Row] = []
        swap_in: Pairs = []
        for id, tokens in plan.tokens.items():
            request = requests[id]
            pairs = self._residency.take(request, tokens)
            if pairs is None:
                self._come_up_short(request)
                continue
            if request.state is not RUNNING:
                self._start(request, step, len(pairs), now_s)
                swap_in += pairs
            request.in_flight += 1
            if id in plan.on_share:
                request.share_tokens += tokens
            step.computing.append(request)
            rows.append(self._row(request, tokens))
        step.batch = StepBatch(rows, swap_out, swap_in)
        return step

    def land(self, step: Step) -> None:
        """The step touches nobody any more."""
        for request in step.swapped_in:
            self._residency.host.release(request.id)
        for request in step.touched():
            request.in_flight -= 1
            if request.state is DRAINING and not request.in_flight:
                self.discard(request, Move.SETTLE)

    def discard(self, request: Request, move: Move) -> None:
        """The one place where a request that is DONE gives back what it held."""
        self._places.move(request, move)
        self._residency.release(request)

    def _evict(self, victim: Request, how: Eviction, step: Step, now_s: float) -> Pairs:
        """With the host store full a victim that was to be swapped is recomputed instead."""
        held = self._residency.held_pages(victim.id)
        pairs = self._residency.swap_out(victim) if how.mode is Mode.SWAP else []
        mode = Mode.SWAP if pairs else Mode.RECOMPUTE
        self._ledger.evicted(victim, how, mode, held, now_s)
        if pairs:
            self._ledger.swapped(victim, len(pairs))
            self._places.move(victim, Move.SWAP_OUT)
            victim.in_flight += 1
            step.swapped_out.append(victim)
        else:
            self._residency.drop(victim)
            self._places.move(victim, Move.RECOMPUTE)
        return pairs

    def _come_up_short(self, request: Request) -> None:
        self._ledger.stats.short_rows += 1
        if request.state is not RUNNING:
            self._residency.unpin(request)

    def _start(self, request: Request, step: Step, copied_pages: int, now_s: float) -> None:
        if request.state is SWAPPED:
            step.swapped_in.append(request)
            self._ledger.swapped(request, copied_pages)
            self._places.move(request, Move.RESUME)
        else:
            self._places.move(request, Move.ADMIT)
        self._ledger.started(request, now_s)

    def _row(self, request: Request, tokens: int) -> Row:
        start = request.computed
        end = start + tokens
        submit = request.submit
        return Row(
            request.row_id,
            request.tokens[start:end],
            start,
            self._residency.pages.table(request.id),
            end == request.known and submit.limits.max_tokens > 0,
            submit.sampling,
            submit.prompt,
            request.output,
        )
