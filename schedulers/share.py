"""A bounded part of rows, pages and tokens for those that have waited longest."""

from collections.abc import Iterable, Iterator
from itertools import chain, takewhile

from schedulers.draft import Draft
from schedulers.interface import RequestId, RequestView, Snapshot
from schedulers.running import Running, by_age, is_held_up


class Share:
    """Part of every step for requests that the order of a strategy holds back.

    The strategy says which requests those are, oldest first. Those that run on the share are
    its members until they end; the strategy must not preempt a member for an arrival, and
    preempts it last, the oldest never, when pages are short. A request becomes a member

    - while it waits, as the oldest that is held back, when the share has credit and a row is
      free: it joins before all others. What it lacks of pages is kept for it until then;
    - while it runs, when it is older than those and the members stay within the share; when
      it gets no token in each step anyway, also as it would if it waited.

    Where the first of all that wait needs more pages than the share leaves, only older ones
    join: else ever new members would keep it from ever fitting.

    A member weighs as many rows as its pages are worth, at least one. With R rows, each plan
    in which a request is held back adds `share * R` to the credit, and takes off what the
    members weigh; one joins at a credit of a row or more, and while the members weigh less
    than `share * R`. Credit is at most one such part (or one row) and is lost when none is
    held back, so it buys no burst. Below 0 it is a debt, in which none joins. So over N plans
    the members weigh at most `share * R * (N + 1)` and one request besides, and what they grow
    by. Where `share * R` is below 1, that is one request until it ends, and then none until
    1 / (share * R) times as many plans have passed.

    Members that prefill get `share` of a step's tokens before all others, the oldest first
    (less than a token is saved up), and at the end what the others leave. Their decode rows
    count only where decode rows take all of a step.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._forget()

    def _forget(self) -> None:
        self._members: dict[RequestId, float] = {}  # rows that each weighs
        self._partly: list[RequestView] = []
        self._credit_rows = self._credit_tokens = 0.0
        self._part_rows = self._row_pages = 1.0
        self._kept_for: RequestId | None = None

    def __contains__(self, view: RequestView) -> bool:
        return view.id in self._members

    def observe(self, snap: Snapshot) -> None:
        """Weigh the members that still run; call once in every `plan`, first."""
        if snap.rebuild:
            self._forget()
        self._part_rows = self._share * snap.max_rows
        self._row_pages = _pages(snap) / snap.max_rows
        running = snap.running
        self._members = {
            id: self._weight(snap, running[id].computed)
            for id in self._members
            if id in running
        }

    def serve(
        self,
        snap: Snapshot,
        draft: Draft,
        running: Running,
        chunks: list[RequestView],
        run: Iterable[RequestView],
        wait: Iterator[RequestView],
        head: RequestView | None,
    ) -> list[RequestView]:
        """Grant the members among `chunks` their part, and let others join. `run` and `wait`
        are those that are held back, oldest first, `head` comes first of those that wait.
        Returns the other chunks. Once in a plan, behind the decode rows."""
        oldest, run = next(wait, None), list(run)
        held_back = oldest or any(is_held_up(snap, view) for view in run if view not in self)
        self._earn(snap, bool(held_back))
        self._adopt(snap, run, oldest)
        if not draft.budget:  # the decode rows took them all
            self._credit_tokens -= sum(draft.tokens.get(id, 0) for id in self._members)
        self._partly = sorted((view for view in chunks if view in self), key=by_age)
        for view in self._partly:
            if self._credit_tokens >= 1:
                running.move(view, int(self._credit_tokens))
                self._credit_tokens -= draft.tokens.get(view.id, 0)
        kept_rows = 0.0
        if oldest and not draft.evicted:
            joining: Iterable[RequestView] = chain((oldest,), wait)
            if head and self._needs_most(snap, head):
                joining = takewhile(lambda view: view.id < head.id, joining)
            kept_rows = self._join(snap, draft, joining)
        self._credit_rows -= self._weigh + kept_rows
        return [view for view in chunks if view not in self]

    def finish(self, snap: Snapshot, draft: Draft, running: Running) -> None:
        """Grant the members what the others have left; once in a plan, last."""
        for view in self._partly:
            if view.id in draft.tokens:
                draft.extend(view)
            else:
                running.move(view)
        running_ones = (snap.running[id] for id in self._members if id in snap.running)
        for view in chain(self._partly, running_ones):
            draft.put_on_share(view)

    @property
    def _weigh(self) -> float:
        return sum(self._members.values())

    @property
    def _has_credit(self) -> bool:
        """Whether one more may become a member, of any weight."""
        return self._credit_rows >= 1 and self._weigh < self._part_rows

    def _earn(self, snap: Snapshot, held_back: bool) -> None:
        most_rows = max(1.0, self._part_rows) if held_back else 0.0
        self._credit_rows = min(most_rows, self._credit_rows + self._part_rows)
        tokens = self._share * snap.budget
        self._credit_tokens = min(1.0 + tokens, self._credit_tokens + tokens)

    def _adopt(
        self, snap: Snapshot, run: Iterable[RequestView], oldest: RequestView | None
    ) -> None:
        for view in run:
            if oldest and oldest.id < view.id:
                return
            if view not in self:
                weight = self._weight(snap, view.computed)
                is_within = self._credit_rows >= 0 and self._weigh + weight <= self._part_rows
                if not is_within and not (self._has_credit and is_held_up(snap, view)):
                    return
                self._members[view.id] = weight

    def _join(self, snap: Snapshot, draft: Draft, wait: Iterable[RequestView]) -> float:
        """Up to the first for which there is no credit, row or pages. Returns rows that are
        kept for that one."""
        kept_for, self._kept_for = self._kept_for, None
        for view in wait:
            if draft.rows <= 0 or not draft.allowance(view):
                break
            may_join = self._has_credit and self._credit_tokens > 0
            if not (may_join or view.id == kept_for):
                break
            weight = self._weight(snap, view.known)
            tokens = draft.admit(view, max(1, int(self._credit_tokens)))
            if not tokens:
                draft.keep_for(view)
                self._kept_for = view.id
                return weight
            self._credit_tokens -= tokens
            self._partly.append(view)
            self._members[view.id] = weight
        return 0.0

    def _needs_most(self, snap: Snapshot, view: RequestView) -> bool:
        """Whether `view` may not fit while the share is never empty."""
        pages = -(-view.known // snap.page_size) + snap.watermark_pages + len(self._members) + 1
        return pages > (1 - self._share) * self._row_pages * snap.max_rows

    def _weight(self, snap: Snapshot, tokens: int) -> float:
        return max(1.0, -(-tokens // snap.page_size) / self._row_pages)


def _pages(snap: Snapshot) -> float:
    """Of the pool, about: one that several requests hold counts for each."""
    held = sum(-(-view.computed // snap.page_size) for view in snap.running.values())
    return float(max(1, snap.free_pages + snap.draining_pages + held))
