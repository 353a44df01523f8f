"""What the engine tells about itself: news of requests, counters, tokens served."""

from collections.abc import Callable, Iterable

from models.batch import RowResult, StepBatch, StepResult
from schedulers.interface import Eviction, Mode
from service.messages import Finish, Pause, Receipt, RequestEvent, StepStats
from service.packing import pack
from service.request import Request
from service.tenants import ServedTokens


class Ledger:
    """Collects between two calls of `take`. News of one request merges into one event.
    `live` names the tenants of live requests."""

    def __init__(self, live: Callable[[], Iterable[str]]) -> None:
        self.stats = StepStats()
        self.served = ServedTokens(live)
        self._events: dict[int, RequestEvent] = {}

    def started(self, request: Request, now_s: float) -> None:
        """The request runs, for the first time or again."""
        at_s = now_s - request.arrival_s
        if request.admitted_s is None:
            request.admitted_s = now_s
            request.cached_tokens = request.computed
            self.stats.cached_tokens += request.computed
            self._event(request.id).admitted = True
        elif request.pauses.end(at_s):
            self._event(request.id).resumed_s.append(at_s)

    def evicted(
        self, request: Request, how: Eviction, mode: Mode, pages: int, now_s: float
    ) -> None:
        """The request gave way, by `mode` whatever was wanted, and held so many pages."""
        pause = Pause(
            at_s=now_s - request.arrival_s,
            mode=mode.value,
            cause=how.cause.value,
            pages=pages,
            swap_s=how.swap_s,
            recompute_s=how.recompute_s,
        )
        request.preemptions += 1
        request.pauses.begin(pause)
        self._event(request.id).paused.append(pause)
        self.stats.preemptions += 1
        if pages and how.mode is Mode.SWAP and mode is Mode.RECOMPUTE:
            self.stats.refused_swaps += 1
        kind = f"{pause.mode} {pause.cause}"
        self.stats.evictions[kind] = self.stats.evictions.get(kind, 0) + 1

    def swapped(self, request: Request, pages: int) -> None:
        """So many pages are copied to the host or back."""
        request.swapped_pages += pages
        self.stats.swapped_pages += pages

    def computed(
        self, request: Request, tokens: int, again: int, found: RowResult, told: int
    ) -> None:
        """`tokens` were computed for the request, `again` of them not for the first time;
        the first `told` prompt log-probabilities (none when negative) were sent before."""
        sampled, fresh = len(found.tokens), tokens - again
        left = request.prompt_tokens - request.computed + fresh
        prompt = min(fresh, left) if left > 0 else 0
        stats = self.stats
        stats.output_tokens += sampled
        if prompt or again:
            stats.input_tokens += prompt
            stats.recomputed_tokens += again
        self.served.add(request.tenant, prompt, sampled)
        if sampled or found.prompt_logprobs:
            event = self._event(request.id)
            event.tokens += found.tokens
            if found.logprobs:
                event.logprobs += pack(found.logprobs)
            if found.prompt_logprobs:
                event.prompt_logprobs += pack(found.prompt_logprobs[max(0, told) :])

    def stepped(self, result: StepResult, batch: StepBatch) -> None:
        """A step returned."""
        self.stats.steps += 1
        self.stats.rows += len(batch.rows)
        self.stats.step_tokens += sum(len(row.tokens) for row in batch.rows)
        self.stats.model_s += result.model_s
        self.stats.sample_s += result.sample_s
        self.stats.copy_s += result.copy_s

    def dropped(self, found: RowResult) -> None:
        """What a row brought for a request that had ended."""
        self.stats.overrun_tokens += len(found.tokens)

    def ended(self, request: Request, reason: Finish, detail: str, now_s: float) -> None:
        """The request's last news."""
        event = self._event(request.id)
        event.finish, event.detail = reason, detail
        event.receipt = request.receipt(now_s)

    def rejected(self, id: int, detail: str) -> None:
        """A request that never came in."""
        event = self._event(id)
        event.finish, event.detail = Finish.FAILED, detail
        event.receipt = Receipt(0.0, 0, 0, 0, 0)

    def take(self) -> tuple[list[RequestEvent], StepStats]:
        """Everything since the last call."""
        events, stats = list(self._events.values()), self.stats
        self._events, self.stats = {}, StepStats()
        return events, stats

    def _event(self, id: int) -> RequestEvent:
        event = self._events.get(id)
        if event is None:
            event = self._events[id] = RequestEvent(id)
        return event
