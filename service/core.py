"""The engine core: commands and step results in, steps and news out.

No thread, clock, await or tensor: whoever drives it brings the time and runs the steps.
`begin` decides a step, `finish` or `fail` says how it went. Requests may be submitted and
ended at any moment between; what a step in flight touches is released when it returns. One
step may be in flight at a time, or two: then the next is decided while one is computed.
"""

from collections.abc import Callable
from types import MappingProxyType

from models.batch import Row, RowResult, StepResult
from schedulers.interface import Plan, RequestId, Snapshot, StepCosts
from service.anticipation import Anticipation
from service.arithmetic import Pages
from service.carrying import Carrier
from service.deadlines import Deadlines
from service.ledger import Ledger
from service.lengths import LearnedLengths
from service.messages import Finish, RequestEvent, StepStats, Submit
from service.places import Places
from service.planner import Planner
from service.request import DRAINING, RUNNING, MakeKeys, Move, Request, keys_of_tokens
from service.residency import Residency
from service.step import Step, StepLimits
from service.views import frozen

__all__ = ["Core", "Step", "StepLimits"]


class Core:
    """All requests of one engine, each in exactly one place.

    `audit` is called with the core after every change: where invariants are checked.
    `keys` makes the page keys of a request, given the page size: from its tokens, unless
    somebody knows what is shared without them (a simulated trace). `steps_in_flight` is 1
    or 2.
    """

    def __init__(
        self,
        residency: Residency,
        planner: Planner,
        limits: StepLimits,
        audit: Callable[["Core"], None] | None = None,
        keys: MakeKeys = keys_of_tokens,
        steps_in_flight: int = 1,
    ) -> None:
        self.residency = residency
        self.planner = planner
        self.costs = StepCosts()  # set by whoever measures steps
        self.steps_in_flight = steps_in_flight
        places = Places(planner)
        self.requests = places.requests
        self.waiting, self.running = places.waiting, places.running
        self.swapped, self.draining = places.swapped, places.draining
        self._places = places
        self._limits = limits
        self._audit = audit
        self._keys = keys
        ahead = steps_in_flight > 1
        self._arithmetic = Pages(self.requests, residency, ahead)
        self._deadlines = Deadlines(self.requests.keys())
        self._ledger = Ledger(lambda: (r.tenant for r in self.requests.values()))
        self._lengths = LearnedLengths()
        self._carrier = Carrier(places, residency, self._ledger)
        self._ahead = Anticipation(places) if ahead else None

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
        request = Request(submit, self.residency.page_size, self._keys)
        self._places.add(request)
        self._deadlines.add(request.id, submit.limits)
        self._check()

    def end(self, id: int, reason: Finish, now_s: float, detail: str = "") -> None:
        """End a request wherever it is. An unknown or ended one is a no-op."""
        request = self.requests.get(RequestId(id))
        if request is None or (request.state is DRAINING and not request.owed):
            return
        self._ledger.ended(request, reason, detail, now_s)
        self._lengths.ended(request, reason)
        if request.owed:
            request.owed = False
        elif request.in_flight:
            self._places.move(request, Move.DRAIN)
        else:
            self._carrier.discard(request, Move.END)
        self._check()

    def begin(self, now_s: float) -> Step | None:
        """Decide the next step, or None when there is nothing to compute now. While a step is
        in flight None may also mean that this one has to return first."""
        if self._ahead is not None:
            return self._begin_ahead(self._ahead, now_s)
        self._expire(now_s)
        plan = self._decide(now_s)
        return None if plan is None else self._carry_out(plan, now_s)

    def finish(self, step: Step, result: StepResult, now_s: float) -> None:
        """The step returned."""
        self._ledger.stepped(result, step.batch)
        if self._ahead is not None:
            self._ahead.returned(step)
        for request, row in zip(step.computing, step.batch.rows, strict=True):
            found = result.rows[row.request]
            if request.state is not RUNNING and not request.owed:
                self._ledger.dropped(found)
            elif found.error is not None:
                self.end(request.id, Finish.FAILED, now_s, found.error)
            else:
                self._accept(request, row, found, now_s)
        self._carrier.land(step)
        self._check()

    def fail(self, step: Step, error: str, now_s: float) -> None:
        """The step raised: what it computed or copied is unknown, so those it touched end;
        all others go on."""
        if self._ahead is not None:
            self._ahead.returned(step)
        for request in step.touched():
            self.end(request.id, Finish.FAILED, now_s, error)
        self._carrier.land(step)
        self._check()

    def take_events(self) -> tuple[list[RequestEvent], StepStats]:
        """News since the last call, and the state of things."""
        stats, pages = self._ledger.stats, self.residency.pages
        stats.scheduler = self.planner.name
        stats.running, stats.waiting = len(self.running), len(self.waiting)
        stats.swapped = len(self.swapped)
        stats.free_pages, stats.cached_pages = pages.free_pages, pages.cached_pages
        stats.held_pages = pages.capacity - pages.free_pages
        stats.host_free_pages = self.residency.host.free_pages
        running = dict.values(self.running)  # in no order, which takes a third of the time
        unused = sum(map(self.residency.unused_slots, running))
        stats.used_slots = stats.held_pages * self.residency.page_size - unused
        stats.plan_faults, self.planner.faults = self.planner.faults, 0
        return self._ledger.take()

    def _begin_ahead(self, ahead: Anticipation, now_s: float) -> Step | None:
        ahead.anticipate()
        self._expire(now_s)
        plan = self._decide(now_s)
        if plan is None or ahead.forbids(plan):  # it is made anew when the flight has landed
            self._check()
            return None
        step = self._carry_out(plan, now_s)
        if step is not None:
            ahead.begun(step)
        return step

    def _decide(self, now_s: float) -> Plan | None:
        """A plan, if there is anybody to plan for; who is refused ends."""
        if not (self.waiting or self.running or self.swapped):
            return None
        plan = self.planner.plan(self._snapshot(now_s))
        for request, refusal in plan.refuse.items():
            detail = f"would have needed {refusal.estimate_s:.3f} s at least"
            self.end(request, Finish.REFUSED, now_s, detail)
        return plan

    def _carry_out(self, plan: Plan, now_s: float) -> Step | None:
        step = self._carrier.carry_out(plan, now_s)
        self._check()
        return step if step.computing or step.swapped_out else None

    def _snapshot(self, now_s: float) -> Snapshot:
        pages, host = self.residency.pages, self.residency.host
        waiting, running, swapped = (
            frozen(place) if self._audit else MappingProxyType(place)
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
            budget=self._budget(),
            max_rows=self._limits.max_rows,
            page_size=self.residency.page_size,
            free_pages=pages.free_pages,
            watermark_pages=self._limits.watermark_pages,
            draining_pages=sum(self.residency.held_pages(id) for id in self.draining),
            host_free_pages=host.free_pages,
            memory=self._arithmetic,
            costs=self.costs,
            served=self._ledger.served.settle(),
            lengths=self._lengths,
        )

    def _budget(self) -> int:
        if self._limits.gap_s is None:
            return self._limits.max_tokens
        running = self.running.values()
        furthest = max((r.computed for r in running if r.known - r.computed > 1), default=0)
        context_tokens = sum(r.known for r in running)
        return self._limits.budget(len(running), self.costs, furthest, context_tokens)

    def _expire(self, now_s: float) -> None:
        for id, reason in self._deadlines.due(now_s):
            request = self.requests.get(id)
            admitted = request is not None and request.admitted_s is not None
            if not (admitted and reason is Finish.QUEUE_TIMEOUT):
                self.end(id, reason, now_s)

    def _accept(self, request: Request, row: Row, found: RowResult, now_s: float) -> None:
        before, tokens = request.computed, len(row.tokens)
        told = request.prompt_logprobs_sent - before
        again = request.advance(tokens)
        self.residency.publish(request, before)
        self._ledger.computed(request, tokens, again, found, told)
        submit = request.submit
        for token in found.tokens:
            request.append(token)
            if token in submit.sampling.stop_ids:
                self.end(request.id, Finish.STOP, now_s)
                return
        prompt_done = request.computed >= request.prompt_tokens
        if prompt_done and request.output_tokens >= submit.limits.max_tokens:
            self.end(request.id, Finish.LENGTH, now_s)

    def _check(self) -> None:
        if self._audit:
            self._audit(self)
