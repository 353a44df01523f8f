"""The engine core: commands and step results in, steps and news out.

No thread, clock, await or tensor: whoever drives it brings the time and runs the steps.
`begin` decides a step, `finish` or `fail` says how it went. Requests may be submitted and
ended at any moment between; what a step in flight touches is released when it returns.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sortedcontainers import SortedDict

from models.batch import RequestId as BatchId
from models.batch import Row, RowResult, StepBatch, StepResult
from schedulers.interface import Eviction, Mode, Plan, RequestId, Snapshot, StepCosts
from service.arithmetic import Pages
from service.deadlines import Deadlines
from service.ledger import Ledger
from service.messages import Finish, RequestEvent, StepStats, Submit
from service.planner import Planner
from service.request import Move, Request, State
from service.residency import Pairs, Residency
from service.views import frozen


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What a step may hold: requests that run, and tokens, decode rows included."""

    max_rows: int
    max_tokens: int
    watermark_pages: int = 0


@dataclass(slots=True)
class Step:
    """A step in flight: the batch for the runner, and whom it touches."""

    batch: StepBatch
    computing: list[Request]
    swapped_out: list[Request]
    swapped_in: list[Request]

    def touched(self) -> list[Request]:
        """Everybody whose pages the step reads or writes."""
        return [*self.computing, *self.swapped_out]


class Core:
    """All requests of one engine, each in exactly one place.

    `audit` is called with the core after every change: where invariants are checked.
    """

    def __init__(
        self,
        residency: Residency,
        planner: Planner,
        limits: StepLimits,
        audit: Callable[["Core"], None] | None = None,
    ) -> None:
        self.residency = residency
        self.planner = planner
        self.requests: dict[RequestId, Request] = {}
        self.waiting: SortedDict = SortedDict()
        self.running: SortedDict = SortedDict()
        self.swapped: SortedDict = SortedDict()
        self.draining: set[RequestId] = set()
        self.costs = StepCosts()  # set by whoever measures steps
        self._places = {
            State.WAITING: self.waiting,
            State.RUNNING: self.running,
            State.SWAPPED: self.swapped,
        }
        self._limits = limits
        self._audit = audit
        self._arithmetic = Pages(self.requests, residency)
        self._deadlines = Deadlines(self.requests.keys())
        self._ledger = Ledger()

    @property
    def has_work(self) -> bool:
        """Somebody waits, runs, is swapped or drains."""
        return bool(self.requests)

    def submit(self, submit: Submit) -> None:
        """Take a request in, WAITING. The front end has judged it; one that could never run
        all the same ends at once and blocks nobody."""
        most = len(submit.prompt) + max(0, submit.limits.max_tokens - 1)
        capacity = self.residency.pages.capacity
        if not submit.prompt or self.residency.covering(most) > capacity:
            self._ledger.rejected(submit.id, f"{most} tokens never fit {capacity} pages")
            return
        if submit.id in self.requests:
            raise ValueError(f"request {submit.id} is here already")
        request = Request(submit, self.residency.page_size)
        self.requests[request.id] = request
        self._deadlines.add(request.id, submit.limits)
        self._enter_waiting(request)
        self._check()

    def end(self, id: int, reason: Finish, now_s: float, detail: str = "") -> None:
        """End a request wherever it is. An unknown or ended one is a no-op."""
        request = self.requests.get(RequestId(id))
        if request is None or request.state is State.DRAINING:
            return
        self._ledger.ended(request, reason, detail, now_s)
        self._leave(request)
        if request.in_flight:
            request.move(Move.DRAIN)
            self.draining.add(request.id)
        else:
            request.move(Move.END)
            self._forget(request)
        self._check()

    def begin(self, now_s: float) -> Step | None:
        """Decide the next step, or None when there is nothing to compute now."""
        self._expire(now_s)
        if not (self.waiting or self.running or self.swapped):
            return None
        plan = self.planner.plan(self._snapshot(now_s))
        for request, refusal in plan.refuse.items():
            detail = f"would have needed {refusal.estimate_s:.3f} s at least"
            self.end(request, Finish.REFUSED, now_s, detail)
        step = self._carry_out(plan, now_s)
        for touched in step.touched():
            touched.in_flight += 1
        self._check()
        return step if step.touched() else None

    def finish(self, step: Step, result: StepResult, now_s: float) -> None:
        """The step returned."""
        self._ledger.stepped(result, len(step.computing))
        self._land(step)
        for request, row in zip(step.computing, step.batch.rows, strict=True):
            if request.state is not State.RUNNING:
                continue
            found = result.rows[BatchId(request.id)]
            if found.error is not None:
                self.end(request.id, Finish.FAILED, now_s, found.error)
            else:
                self._accept(request, row, found, now_s)
        self._check()

    def fail(self, step: Step, error: str, now_s: float) -> None:
        """The step raised: what it computed or copied is unknown, so those it touched end;
        all others go on."""
        self._land(step)
        for request in step.touched():
            self.end(request.id, Finish.FAILED, now_s, error)
        self._check()

    def take_events(self) -> tuple[list[RequestEvent], StepStats]:
        """News since the last call, and the state of things."""
        stats, pages = self._ledger.stats, self.residency.pages
        stats.running, stats.waiting = len(self.running), len(self.waiting)
        stats.swapped = len(self.swapped)
        stats.free_pages, stats.cached_pages = pages.free_pages, pages.cached_pages
        stats.held_pages = pages.capacity - pages.free_pages
        unused = sum(self.residency.unused_slots(r) for r in self.running.values())
        stats.used_slots = stats.held_pages * self.residency.page_size - unused
        stats.plan_faults, self.planner.faults = self.planner.faults, 0
        return self._ledger.take()

    def _snapshot(self, now_s: float) -> Snapshot:
        pages, host = self.residency.pages, self.residency.host
        waiting, running, swapped = (
            frozen(place) if self._audit else place
            for place in (self.waiting, self.running, self.swapped)
        )
        return Snapshot(
            now_s=now_s,
            waiting=waiting,
            running=running,
            swapped=swapped,
            arrived=self.planner.arrived,
            left=self.planner.left,
            rebuild=self.planner.rebuild,
            budget=self._limits.max_tokens,
            max_rows=self._limits.max_rows,
            page_size=self.residency.page_size,
            free_pages=pages.free_pages,
            watermark_pages=self._limits.watermark_pages,
            draining_pages=sum(self.residency.held_pages(id) for id in self.draining),
            host_free_pages=host.free_pages,
            memory=self._arithmetic,
            costs=self.costs,
            served=self._ledger.served,
        )

    def _expire(self, now_s: float) -> None:
        for id, reason in self._deadlines.due(now_s):
            request = self.requests.get(id)
            admitted = request is not None and request.admitted_s is not None
            if not (admitted and reason is Finish.QUEUE_TIMEOUT):
                self.end(id, reason, now_s)

    def _carry_out(self, plan: Plan, now_s: float) -> Step:
        """Evict, pin all cached prefixes, take pages. A row that comes up short all the same
        is left out and counted."""
        swapped_out: list[Request] = []
        swap_out: Pairs = []
        for id, how in plan.evict.items():
            swap_out += self._evict(self.requests[id], how, swapped_out)
        joining = [self.requests[id] for id in plan.tokens if id not in self.running]
        for request in joining:
            self.residency.pin(request)
        step = Step(StepBatch(rows=[]), [], swapped_out, [])
        rows: list[Row] = []
        swap_in: Pairs = []
        for id, tokens in plan.tokens.items():
            request = self.requests[id]
            pairs = self.residency.take(request, tokens)
            if pairs is None:
                self._come_up_short(request)
                continue
            swap_in += pairs
            self._start(request, step, now_s)
            step.computing.append(request)
            rows.append(self._row(request, tokens))
        self._ledger.stats.swapped_pages += len(swap_out) + len(swap_in)
        step.batch = StepBatch(rows, swap_out, swap_in)
        return step

    def _evict(self, victim: Request, how: Eviction, swapped_out: list[Request]) -> Pairs:
        """With the host store full a victim that was to be swapped is recomputed instead."""
        pairs = self.residency.swap_out(victim) if how.mode is Mode.SWAP else []
        self._ledger.evicted(victim)
        self._leave(victim)
        if pairs:
            victim.move(Move.SWAP_OUT)
            self.swapped[victim.id] = victim
            swapped_out.append(victim)
        else:
            victim.move(Move.RECOMPUTE)
            self.residency.drop(victim)
            self._enter_waiting(victim)
        return pairs

    def _come_up_short(self, request: Request) -> None:
        self._ledger.stats.short_rows += 1
        if request.state is not State.RUNNING:
            self.residency.unpin(request)

    def _start(self, request: Request, step: Step, now_s: float) -> None:
        if request.state is State.RUNNING:
            return
        self._leave(request)
        if request.state is State.SWAPPED:
            request.move(Move.RESUME)
            step.swapped_in.append(request)
        else:
            request.move(Move.ADMIT)
            self._ledger.admitted(request, now_s)
        self.running[request.id] = request

    def _row(self, request: Request, tokens: int) -> Row:
        start, end = request.computed, request.computed + tokens
        return Row(
            request=BatchId(request.id),
            tokens=request.tokens[start:end],
            start=start,
            pages=self.residency.pages.table(request.id),
            samples=end == request.known and request.submit.limits.max_tokens > 0,
            sampling=request.submit.sampling,
            prompt=request.submit.prompt,
            output=request.output,
        )

    def _land(self, step: Step) -> None:
        """The step touches nobody any more."""
        for request in step.swapped_in:
            self.residency.host.release(request.id)
        for request in step.touched():
            request.in_flight -= 1
            if request.state is State.DRAINING and not request.in_flight:
                request.move(Move.SETTLE)
                self.draining.discard(request.id)
                self._forget(request)

    def _accept(self, request: Request, row: Row, found: RowResult, now_s: float) -> None:
        before, tokens = request.computed, len(row.tokens)
        told = max(0, request.prompt_logprobs_sent - before)
        again = request.advance(tokens)
        self.residency.publish(request, before)
        self._ledger.computed(request, tokens, again, found, told)
        for token in found.tokens:
            request.append(token)
            if token in request.submit.sampling.stop_ids:
                self.end(request.id, Finish.STOP, now_s)
                return
        prompt_done = request.computed >= request.prompt_tokens
        if prompt_done and request.output_tokens >= request.submit.limits.max_tokens:
            self.end(request.id, Finish.LENGTH, now_s)

    def _enter_waiting(self, request: Request) -> None:
        self.waiting[request.id] = request
        self.planner.arrived.append(request.id)

    def _leave(self, request: Request) -> None:
        """Take the request out of the one place it is in."""
        del self._places[request.state][request.id]
        if request.state is State.WAITING:
            self.planner.left.append(request.id)

    def _forget(self, request: Request) -> None:
        """The one place where a request that is DONE gives back what it held."""
        del self.requests[request.id]
        self.residency.release(request.id)

    def _check(self) -> None:
        if self._audit:
            self._audit(self)
