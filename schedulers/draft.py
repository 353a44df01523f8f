"""A plan while it is made: keeps the sums that `schedulers.check` will ask for."""

from collections.abc import Collection

from schedulers.interface import Eviction, Plan, Refusal, RequestId, RequestView, Snapshot


class Draft:
    """Grants tokens, rows and pages until the step is full.

    A strategy names requests in its own order; what it is granted is legal by
    construction, apart from evicting or refusing what it may not.
    """

    def __init__(self, snap: Snapshot) -> None:
        self._snap = snap
        self.budget = snap.budget
        self.rows = snap.max_rows - len(snap.running)
        self.pages = snap.free_pages
        self._tokens: dict[RequestId, int] = {}
        self._taken: dict[RequestId, int] = {}
        self._evict: dict[RequestId, Eviction] = {}
        self._refuse: dict[RequestId, Refusal] = {}

    def take(self, view: RequestView, want: int | None = None, keep_pages: int = 0) -> int:
        """Grant `view` up to `want` tokens (its pending ones when absent), leaving at least
        `keep_pages` free. Returns what was granted, 0 when nothing fits."""
        joins = view.id not in self._snap.running
        if joins and self.rows <= 0:
            return 0
        pending = self._snap.pending(view)
        tokens = min(pending if want is None else min(want, pending), self.budget)
        tokens, pages = self._fit(view.id, tokens, self.pages - keep_pages)
        if tokens <= 0:
            return 0
        self._tokens[view.id] = tokens
        self._taken[view.id] = pages
        self.budget -= tokens
        self.pages -= pages
        self.rows -= joins
        return tokens

    def admit(self, view: RequestView, want: int | None = None) -> int:
        """Like `take`, for a request that joins: leaves the watermark to those that run."""
        alone = self.is_empty and not self._snap.running
        return self.take(view, want, 0 if alone else self._snap.watermark_pages)

    def gives(self, view: RequestView) -> int:
        """Pages that evicting a running request adds to this plan, at least."""
        return self._taken.get(view.id, 0) + self._snap.memory.pages_from(view.id)

    def evict(self, view: RequestView, eviction: Eviction) -> None:
        """Take a running request's pages and row for others, and what it was granted."""
        self.pages += self.gives(view)
        self.budget += self._tokens.pop(view.id, 0)
        self._taken.pop(view.id, None)
        self._evict[view.id] = eviction
        self.rows += 1

    def refuse(self, view: RequestView, refusal: Refusal) -> None:
        """Turn a waiting request away."""
        self._refuse[view.id] = refusal

    @property
    def is_empty(self) -> bool:
        """No tokens granted yet."""
        return not self._tokens

    @property
    def evicted(self) -> Collection[RequestId]:
        """Who gives way in this step."""
        return self._evict.keys()

    def plan(self) -> Plan:
        """The finished plan."""
        return Plan(self._tokens, self._evict, self._refuse)

    def _fit(self, request: RequestId, tokens: int, pages: int) -> tuple[int, int]:
        """The largest chunk of at most `tokens` that takes at most `pages`, and its pages."""
        memory = self._snap.memory
        while tokens > 0:
            need = memory.pages_for(request, tokens)
            if need <= pages:
                return tokens, need
            tokens -= max(1, (need - pages - 1) * self._snap.page_size)
        return 0, 0
