"""Whether requests make it: what each still needs, and the time that it has."""

from math import inf

from schedulers.interface import RequestId, RequestView, Snapshot, StepCosts, least_tokens
from schedulers.pace import Pace

USUAL = 0.25  # quantile of answer lengths: one that may be short is tried
AGAIN = 32  # output tokens after which a length is estimated anew
ROWS = 64  # that share a step, at most, in what a decode row costs
SURELY = 0.9  # of the least need: one that is refused by a wrong estimate is lost


class Outlook:
    """Estimates for waiting and running requests, from measured costs (corrected by the time
    that steps really took) and learned lengths.

    A request's spare time is what it could still wait before it is late: for its deadline, if
    its tokens come at a given pace; for its first token; and for the pace that it wants, as
    the deadline of its last token, counted from the first.
    """

    def __init__(self) -> None:
        self.pace = Pace()
        self.costs = StepCosts()
        self.decode_s = 0.0  # of a step of what runs now, without prefill
        self._lengths: dict[RequestId, tuple[int, int, int]] = {}
        self._first_s: dict[RequestId, float] = {}

    def observe(self, snap: Snapshot) -> None:
        """Call once in every `plan`, first."""
        self._snap = snap
        if snap.rebuild:
            self._lengths, self._first_s = {}, {}
        self.pace.observe(snap)
        self.costs = self.pace.corrected(snap.costs)
        there = len(snap.running) + len(snap.waiting) + len(snap.swapped)
        if len(self._lengths) > 2 * there + AGAIN:
            self._lengths = {r: v for r, v in self._lengths.items() if _is_there(snap, r)}
        if len(self._first_s) > 2 * len(snap.running) + AGAIN:
            self._first_s = {r: v for r, v in self._first_s.items() if _is_there(snap, r)}
        decoding = [v for v in snap.running.values() if v.known - v.computed == 1]
        context = sum(view.known for view in decoding)
        self.decode_s = self.costs.step_s + self.costs.decode_s(len(decoding), context)

    @property
    def step_s(self) -> float:
        """The pace to reckon with: as steps were lately, with prefills."""
        return max(self.decode_s, self.pace.step_s or 0.0)

    def rest(self, view: RequestView) -> int:
        """Output tokens that `view` probably has still to come."""
        return self._length(view)[0] - view.output_tokens

    def least_rest(self, view: RequestView) -> int:
        """Output tokens that it has at least."""
        return max(1, self._length(view)[1] - view.output_tokens)

    def is_told(self, view: RequestView) -> bool:
        """Whether the length of its answer is known, not learned."""
        return self._length(view)[1] == view.max_tokens

    def _length(self, view: RequestView) -> tuple[int, int, int]:
        found = self._lengths.get(view.id)
        if found is None or view.output_tokens >= found[2]:
            quantile = self._snap.lengths.quantile
            usual, is_told = quantile(view, USUAL), quantile(view, 0.0) == view.max_tokens
            least = view.max_tokens if is_told else least_tokens(view)
            until = min(usual, view.output_tokens + AGAIN)
            found = self._lengths[view.id] = usual, least, until
        return found

    def work_s(self, view: RequestView, pending: int) -> float:
        """Time of the engine that the rest of `view` takes."""
        costs, rest = self.costs, self.rest(view)
        rows = min(ROWS, self._snap.max_rows)
        row_s = costs.step_s / rows + costs.row_s + costs.context_s * (view.known + rest / 2)
        return self.prefill_s(view, pending) + rest * row_s

    def prefill_s(self, view: RequestView, pending: int) -> float:
        """Of the last `pending` tokens that are known of `view`."""
        return self.costs.prefill_s(pending, view.known - pending) if pending > 1 else 0.0

    def piece_s(self, view: RequestView, pending: int, budget: int) -> float:
        """Of the part of `view` that a step computes which has `budget` tokens left."""
        if pending <= 1:
            return 0.0
        return self.costs.prefill_s(min(pending, budget), view.known - pending)

    def spare_s(
        self, view: RequestView, prefill_s: float, step_s: float, rest: int | None = None
    ) -> float:
        """Of `view`, if its prefill takes so long and each of `rest` tokens (probably) then
        `step_s`; below 0 when it is late, infinite when it wants nothing."""
        rest = self.rest(view) if rest is None else rest
        now_s, spare_s = self._snap.now_s, inf
        if view.deadline_s is not None:
            spare_s = view.deadline_s - now_s - prefill_s - rest * step_s
        if view.first_token_deadline_s is not None and not view.output_tokens:
            first_s = view.first_token_deadline_s - now_s - prefill_s - self.costs.step_s
            spare_s = min(spare_s, first_s)
        if view.tokens_per_second:
            spare_s = min(spare_s, self._stream_s(view, prefill_s, step_s, rest))
        return spare_s

    def _stream_s(self, view: RequestView, prefill_s: float, step_s: float, rest: int) -> float:
        wanted_s = 1 / (view.tokens_per_second or inf)
        if not view.output_tokens:
            return (rest - 1) * (wanted_s - step_s)
        first_s = self._first_s.setdefault(view.id, self._snap.now_s)
        last_s = first_s + (view.output_tokens + rest - 1) * wanted_s
        return last_s - self._snap.now_s - prefill_s - rest * step_s

    def latest_s(self, view: RequestView, pending: int) -> float:
        """When `view` must begin at the latest, if it has the engine to itself."""
        latest_s = inf
        if view.deadline_s is not None:
            latest_s = view.deadline_s - SURELY * self.least_s(view, pending)
        if view.first_token_deadline_s is not None and not view.output_tokens:
            next_s = self.costs.step_s + self.costs.prefill_s(pending, view.known - pending)
            latest_s = min(latest_s, view.first_token_deadline_s - SURELY * next_s)
        return latest_s

    def least_s(self, view: RequestView, pending: int) -> float:
        """What `view` needs for its whole answer, if it has the engine to itself."""
        steps = self.least_rest(view) - 1
        next_s = self.costs.step_s + self.costs.prefill_s(pending, view.known - pending)
        return next_s + steps * (self.costs.step_s + self.costs.row_s)


def _is_there(snap: Snapshot, request: RequestId) -> bool:
    return request in snap.running or request in snap.waiting or request in snap.swapped
