"""Keeps steps short while nobody urgent is there, for whoever urgent comes next."""

from schedulers.draft import Draft
from schedulers.interface import RequestView, Snapshot


class BulkDraft(Draft):
    """A draft in which prefills below priority `urgent` get at most `bulk_tokens` tokens in
    all, and none after an urgent one. Whoever arrives waits for the step in flight, and then
    for all that its own step computes. Decode rows are not counted."""

    def __init__(self, snap: Snapshot, urgent: int, bulk_tokens: int) -> None:
        super().__init__(snap)
        self._urgent = urgent
        self._left = bulk_tokens

    def allowance(self, view: RequestView) -> int:
        return min(self.budget, self._left) if self._is_bulk(view) else self.budget

    def take(self, view: RequestView, want: int | None = None, keep_pages: int = 0) -> int:
        tokens = super().take(view, want, keep_pages)
        if self._is_bulk(view):
            self._left -= tokens
        elif tokens > 1:
            self._left = 0
        return tokens

    def _ungrant(self, view: RequestView) -> None:
        if self._is_bulk(view):
            self._left += self.tokens[view.id]
        super()._ungrant(view)

    def _is_bulk(self, view: RequestView) -> bool:
        return view.priority < self._urgent and view.known - view.computed > 1
