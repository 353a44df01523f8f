"""Where requests live: carries plans out on the page pool and the host store.

Moves pages, never states: the core does that. Every method that fails leaves both pools as
they were. None gives back what a step in flight touches.
"""

from memory.host import HostFull, HostPages
from memory.pages import OutOfPages, PageAllocator
from schedulers.interface import RequestId
from service.request import SWAPPED, WAITING, Request

Pairs = list[tuple[int, int]]


class Residency:
    """Device and host pages of requests. `page_size` in tokens."""

    def __init__(self, pages: PageAllocator, host: HostPages, page_size: int) -> None:
        self.pages = pages
        self.host = host
        self.page_size = page_size

    def covering(self, tokens: int) -> int:
        """Pages that hold `tokens` tokens."""
        return -(-tokens // self.page_size)

    def held_pages(self, request: RequestId) -> int:
        """Device pages in the request's table; 0 when it has none."""
        return len(self.pages.table(request)) if self.pages.holds(request) else 0

    def unused_slots(self, request: Request) -> int:
        """Slots of the request's pages that hold no token."""
        return len(self.pages.table(request.id)) * self.page_size - request.computed

    def swap_out(self, request: Request) -> Pairs:
        """Trade device pages for host pages; (device, host) pairs to copy before anything
        else is written. Empty when there is nothing to keep or the host store is full:
        nothing was traded."""
        _untouched(request)
        filled = self.pages.table(request.id)[: self.covering(request.computed)]
        if not filled:
            return []
        try:
            held = self.host.take(request.id, len(filled))
        except HostFull:
            return []
        pairs = list(zip(filled, held, strict=True))
        self.pages.release(request.id)
        return pairs

    def drop(self, request: Request) -> None:
        """Give device pages back; what they held is computed again."""
        self._release(request)
        request.computed = 0

    def pin(self, request: Request) -> None:
        """Open the table of a request that does not run with what the cache has: for a
        waiting one it counts as computed, for a swapped one it spares copies."""
        waits = request.state is WAITING
        tokens = request.cacheable_tokens if waits else request.computed
        hits = self.pages.open(request.id, request.keys(tokens))
        if waits:
            request.computed = hits * self.page_size

    def unpin(self, request: Request) -> None:
        """Undo `pin`."""
        self._release(request)
        if request.state is WAITING:
            request.computed = 0

    def take(self, request: Request, tokens: int) -> Pairs | None:
        """Pages for `tokens` more, and the (host, device) pairs to copy first when the
        request was swapped; None when the pool comes up short."""
        pinned = len(self.pages.table(request.id))
        needed = -(-(request.computed + tokens) // self.page_size) - pinned
        if needed > 0:
            try:
                self.pages.grow(request.id, needed)
            except OutOfPages:
                return None
        if request.state is not SWAPPED:
            return []
        return list(zip(self.host.table(request.id), self.pages.table(request.id)))[pinned:]  # noqa: B905

    def publish(self, request: Request, before: int) -> None:
        """Offer the pages that filled up since `before` tokens were computed."""
        first, full = before // self.page_size, request.computed // self.page_size
        if first == full or not self.pages.caches:
            return
        keys = request.keys(full * self.page_size)
        for index in range(first, full):
            self.pages.publish(request.id, index, keys[index])

    def release(self, request: Request) -> None:
        """Give back all that an ended request holds, wherever it is."""
        if self.pages.holds(request.id):
            self._release(request)
        if self.host.holds(request.id):
            self.host.release(request.id)

    def _release(self, request: Request) -> None:
        _untouched(request)
        self.pages.release(request.id)


def _untouched(request: Request) -> None:
    # Somebody else would write to pages that are still read, or read what was half written.
    assert not request.in_flight, f"a step in flight touches the pages of {request.id}"
