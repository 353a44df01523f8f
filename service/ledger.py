"""What the engine tells about itself: news of requests, counters, tokens served."""

from collections import defaultdict

from models.batch import RowResult, StepResult
from schedulers.interface import Served
from service.messages import Finish, Receipt, RequestEvent, StepStats
from service.request import Request


class Ledger:
    """Collects between two calls of `take`. News of one request merges into one event."""

    def __init__(self) -> None:
        self.stats = StepStats()
        self.served: defaultdict[str, Served] = defaultdict(Served)
        self._events: dict[int, RequestEvent] = {}

    def admitted(self, request: Request, now_s: float) -> None:
        """The request runs; the first time is news."""
        if request.admitted_s is None:
            request.admitted_s = now_s
            request.cached_tokens = request.computed
            self._event(request.id).admitted = True

    def evicted(self, request: Request) -> None:
        """The request gave way."""
        request.preemptions += 1
        self.stats.preemptions += 1

    def computed(
        self, request: Request, tokens: int, again: int, found: RowResult, told: int
    ) -> None:
        """`tokens` were computed for the request, `again` of them not for the first time;
        the first `told` prompt log-probabilities have been sent before."""
        sampled = len(found.tokens)
        fresh = tokens - again
        prompt = max(0, min(fresh, request.prompt_tokens - (request.computed - fresh)))
        self.stats.recomputed_tokens += again
        self.stats.input_tokens += prompt
        self.stats.output_tokens += sampled
        served = self.served[request.tenant]
        self.served[request.tenant] = Served(
            served.input_tokens + prompt, served.output_tokens + sampled
        )
        if sampled or found.prompt_logprobs:
            event = self._event(request.id)
            event.tokens += found.tokens
            event.logprobs += found.logprobs
            event.prompt_logprobs += found.prompt_logprobs[told:]

    def stepped(self, result: StepResult, rows: int) -> None:
        """A step returned."""
        self.stats.steps += 1
        self.stats.rows += rows
        self.stats.model_s += result.model_s
        self.stats.sample_s += result.sample_s

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
        return self._events.setdefault(id, RequestEvent(id))
