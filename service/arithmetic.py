"""The one owner of page counts: answers `schedulers.interface.PageArithmetic`."""

from collections.abc import Mapping

from schedulers.interface import RequestId
from service.request import RUNNING, SWAPPED, WAITING, Request
from service.residency import Residency

SPARE_ENTRIES = 1024


class Pages:
    """Page counts over live requests. Nothing here changes anything. `ahead`: plans are made
    while a step is in flight, and whoever evicts what it touches waits for it; so evicting
    gives back as much as without one."""

    def __init__(
        self,
        requests: Mapping[RequestId, Request],
        residency: Residency,
        ahead: bool = False,
    ) -> None:
        self._requests = requests
        self._ahead = ahead
        self._residency = residency
        self._pages = residency.pages
        self._page_size = residency.page_size
        self._memo: dict[tuple[RequestId, int], int] = {}
        self._memo_version = -1

    def __len__(self) -> int:
        """Counts that are memoised."""
        return len(self._memo)

    def cached_tokens(self, request: RequestId) -> int:
        """See PageArithmetic."""
        found = self._requests[request]
        if found.state is not WAITING:
            return 0
        # Without a cache, or with prompts too short for it, the version never changes.
        full = len(self._memo) > SPARE_ENTRIES + 2 * len(self._requests)
        if full or self._memo_version != self._pages.version:
            self._memo.clear()
            self._memo_version = self._pages.version
        cacheable = found.cacheable_tokens
        key = (request, cacheable)
        if key not in self._memo:
            hits, _ = self._pages.lookup(found.keys(cacheable))
            self._memo[key] = hits * self._page_size
        return self._memo[key]

    def pages_for(self, request: RequestId, tokens: int) -> int:
        """See PageArithmetic."""
        found = self._requests[request]
        if found.state is RUNNING:
            needed = -(-(found.computed + tokens) // self._page_size)
            held = len(self._pages.table(request))
            return needed - held if needed > held else 0
        if found.state is SWAPPED:
            return self._residency.covering(found.computed + tokens)
        cached = self.cached_tokens(request)
        hits, pinned = self._pages.lookup(found.keys(cached))
        return self._residency.covering(cached + tokens) - hits + pinned

    def pages_from(self, request: RequestId) -> int:
        """See PageArithmetic."""
        found = self._requests[request]
        if found.in_flight and not self._ahead:
            return 0
        return self._pages.sole_pages(request)
