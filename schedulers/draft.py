"""A plan while it is made: keeps the sums that `schedulers.check` will ask for."""

from collections.abc import Collection, Iterable, Mapping

from schedulers.interface import Eviction, Plan, Refusal, RequestId, RequestView, Snapshot


class Draft:
    """Grants tokens, rows and pages until the step is full.

    A strategy names requests in its own order; what it is granted is legal by
    construction, apart from evicting or refusing what it may not, and does not come up
    short of pages when it is carried out.
    """

    def __init__(self, snap: Snapshot) -> None:
        self._snap = snap
        self.budget = snap.budget
        self.rows = snap.max_rows - len(snap.running)
        self.pages = snap.free_pages
        self._tokens: dict[RequestId, int] = {}
        self._taken: dict[RequestId, int] = {}
        self._joined: list[RequestView] = []
        self._evict: dict[RequestId, Eviction] = {}
        self._refuse: dict[RequestId, Refusal] = {}
        self._on_share: set[RequestId] = set()
        self._kept_pages = 0

    def decode(
        self, views: Iterable[RequestView]
    ) -> tuple[list[RequestView], list[RequestView]]:
        """Grant a token to each of `views`, which run, that has one pending. Returns those
        that found no page and those that have more pending. Once for a draft, first."""
        pages_for, tokens, taken = self._snap.memory.pages_for, self._tokens, self._taken
        budget, pages = self.budget, self.pages
        short, chunks = [], []
        for view in views:
            if view.known - view.computed > 1:
                chunks.append(view)
            elif budget:
                id = view.id
                need = pages_for(id, 1)
                if need > pages:
                    short.append(view)
                    continue
                tokens[id] = 1
                budget -= 1
                if need:
                    taken[id] = need
                    pages -= need
        self.budget, self.pages = budget, pages
        return short, chunks

    def allowance(self, view: RequestView) -> int:
        """Tokens that `view` may still be granted in this step, pages apart."""
        return self.budget

    def take(self, view: RequestView, want: int | None = None, keep_pages: int = 0) -> int:
        """Grant `view` up to `want` tokens (its pending ones when absent), leaving at least
        `keep_pages` free. Returns what was granted, 0 when nothing fits."""
        joins, room = view.id not in self._snap.running, self.pages - keep_pages
        most = self.allowance(view)
        if joins and (self.rows <= 0 or room <= 0 or most <= 0):
            return 0  # one that joins takes a page at least; nothing to ask the cache for
        pending = self._snap.pending(view)
        tokens = min(pending if want is None else min(want, pending), most)
        tokens, pages = self._fit(view, tokens, room)
        if tokens <= 0:
            return 0
        self._tokens[view.id] = tokens
        self._taken[view.id] = pages
        self.budget -= tokens
        self.pages -= pages
        if joins:
            self.rows -= 1
            self._joined.append(view)
        return tokens

    def admit(self, view: RequestView, want: int | None = None) -> int:
        """Like `take`, for a request that joins. While others run it joins only when there
        are pages for all that it has pending, beside the reserve: who is let in on less is
        soon evicted again, and again."""
        if self.rows <= 0 or not self.allowance(view):
            return 0
        keep = self.reserve_pages()
        if keep and self.admission_pages(view) > self.pages:
            return 0
        return self.take(view, want, keep)

    def extend(self, view: RequestView) -> int:
        """Grant `view`, which was granted tokens, all it has pending, or as much as fits.
        Returns what it has then."""
        self._ungrant(view)
        return self.take(view)

    def _ungrant(self, view: RequestView) -> None:
        self.budget += self._tokens.pop(view.id)
        self.pages += self._taken.pop(view.id, 0)
        if view in self._joined:
            self._joined.remove(view)
            self.rows += 1

    def admission_pages(self, view: RequestView, repins: int = 0, leaving: int = 0) -> int:
        """Free pages at which `view` joins, once `leaving` more give way, of whose pages
        `repins` are in its cached prefix."""
        pending, keep = self._snap.pending(view), self.reserve_pages(leaving)
        tokens = pending if keep else min(pending, self.allowance(view))
        return self.need_pages(view, tokens, repins) + keep

    def reserve_pages(self, leaving: int = 0) -> int:
        """What an admission leaves to others once `leaving` more give way: the watermark
        and the next page of each, or nothing when nobody else is left; and what is kept."""
        stay = len(self._snap.running) + len(self._joined) - len(self._evict) - leaving
        return self._kept_pages + (self._snap.watermark_pages + stay if stay else 0)

    def keep_for(self, view: RequestView) -> None:
        """Leave a row, and pages as far as there are any, to `view`, which waits and does
        not fit: from here on no admission takes them."""
        self.rows -= 1
        self._kept_pages += self.need_pages(view, self._snap.pending(view))

    def gives(self, view: RequestView) -> int:
        """Pages that evicting a running request adds to this plan, at least."""
        lost = max((self.repins(joined, view) for joined in self._joined), default=0)
        return self._taken.get(view.id, 0) + self._snap.memory.pages_from(view.id) - lost

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

    def put_on_share(self, view: RequestView) -> None:
        """Report what `view` is granted in this step as the strategy's share."""
        self._on_share.add(view.id)

    @property
    def tokens(self) -> Mapping[RequestId, int]:
        """What is granted so far."""
        return self._tokens

    @property
    def is_empty(self) -> bool:
        """No tokens granted yet."""
        return not self._tokens

    @property
    def evicted(self) -> Collection[RequestId]:
        """Who gives way in this step."""
        return self._evict.keys()

    @property
    def refused(self) -> Collection[RequestId]:
        """Who is turned away in this step."""
        return self._refuse.keys()

    def plan(self) -> Plan:
        """The finished plan."""
        on_share = frozenset(self._on_share & self._tokens.keys())
        return Plan(self._tokens, self._evict, self._refuse, on_share)

    def need_pages(self, view: RequestView, tokens: int, repins: int = 0) -> int:
        """What `tokens` for `view` take out of `pages`, when `repins` pages that others give
        back besides are in its cached prefix."""
        need = self._snap.memory.pages_for(view.id, tokens)
        for gone in self._evict:
            repins += self.repins(view, self._snap.running[gone])
        if not repins:
            return need
        cached = self._snap.memory.cached_tokens(view.id)
        return min(need + repins, self._covering(cached + tokens))

    def repins(self, view: RequestView, victim: RequestView) -> int:
        """Pages counted as given back by `victim` which are in the cached prefix of `view`,
        at most: both begin at token 0, and what `victim` shares are its first pages."""
        hits = self._snap.memory.cached_tokens(view.id) // self._snap.page_size
        if not hits:
            return 0
        pages, sole = self._covering(victim.computed), self._snap.memory.pages_from(victim.id)
        return max(0, min(sole, min(hits, pages) - (pages - sole)))

    def _fit(self, view: RequestView, tokens: int, pages: int) -> tuple[int, int]:
        """The largest chunk of at most `tokens` that takes at most `pages`, and its pages."""
        while tokens > 0:
            need = self.need_pages(view, tokens)
            if need <= pages:
                return tokens, need
            tokens -= max(1, (need - pages - 1) * self._snap.page_size)
        return 0, 0

    def _covering(self, tokens: int) -> int:
        return -(-tokens // self._snap.page_size)
