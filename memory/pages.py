"""Who holds which page of the pool, and the prefix cache over full ones.

The contract, asserted by `check`:
- conservation: free, cached (published, unreferenced) and held pages are disjoint and
  together all pages but page 0, which is scratch for padding rows;
- counting: a page's references equal the tables that list it; releasing an unknown owner
  raises;
- no aliasing: a page in two tables is published, hence full and never written again;
- keys cover the prefix from token 0 (`memory.prefix`);
- append-only: a table grows at its end and goes as a whole;
- all or nothing: a call that raises changes nothing.

Finding a cached prefix and pinning it is one call. Publish a page only after the step that
filled it returned. Page ids only; tensors live elsewhere.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence, Set

from memory.prefix import PageKey


class OutOfPages(RuntimeError):
    """The pool cannot give so many pages now."""


class PageAllocator:
    """Pages 1 .. num_pages - 1, for owners named by any int."""

    def __init__(self, num_pages: int, prefix_cache: bool = True) -> None:
        if num_pages < 2:
            raise ValueError(f"num_pages is {num_pages}, but one page is scratch: at least 2")
        self.num_pages = num_pages
        self.version = 0  # grows when what the cache would answer changes
        self.caches = prefix_cache
        self._free = list(range(num_pages - 1, 0, -1))
        self._references = [0] * num_pages
        self._tables: dict[int, list[int]] = {}
        # Owner -> its pages in order of position. Live: do not change them. No method,
        # because it is asked several times a row and step.
        self.table: Callable[[int], Sequence[int]] = self._tables.__getitem__
        self._published: dict[bytes, int] = {}
        self._keys: dict[int, PageKey] = {}
        self._cached: OrderedDict[int, None] = OrderedDict()  # unreferenced, oldest first

    @property
    def free_pages(self) -> int:
        """Pages that can be taken now, cached and unreferenced ones included."""
        return len(self._free) + len(self._cached)

    @property
    def cached_pages(self) -> int:
        """Unreferenced pages kept for their content."""
        return len(self._cached)

    @property
    def capacity(self) -> int:
        """Pages one owner could have at most."""
        return self.num_pages - 1

    def lookup(self, keys: Sequence[PageKey]) -> tuple[int, int]:
        """Length of the cached prefix of `keys`, and how many of its pages are now
        unreferenced (pinning those takes them out of `free_pages`)."""
        hits = self._hits(keys)
        return len(hits), sum(not self._references[page] for page in hits)

    def open(self, owner: int, keys: Sequence[PageKey]) -> int:
        """Start a table with the longest cached prefix of `keys`, pinned. Returns its
        length in pages."""
        if owner in self._tables:
            raise ValueError(f"owner {owner} has a table already")
        hits = self._hits(keys)
        for page in hits:
            self._references[page] += 1
            self._cached.pop(page, None)
        self._tables[owner] = hits
        return len(hits)

    def grow(self, owner: int, pages: int) -> None:
        """Append `pages` empty pages to the owner's table, or raise OutOfPages."""
        table = self._tables[owner]
        if pages > self.free_pages:
            raise OutOfPages(f"{pages} pages wanted, {self.free_pages} free")
        for _ in range(pages):
            page = self._free.pop() if self._free else self._forget_oldest()
            self._references[page] = 1
            table.append(page)

    def publish(self, owner: int, index: int, key: PageKey) -> None:
        """Offer the owner's full page number `index` to later prompts. A page whose key
        another page already has stays private."""
        page = self._tables[owner][index]
        if not self.caches or page in self._keys or key.digest in self._published:
            return
        self._published[key.digest] = page
        self._keys[page] = key
        self.version += 1

    def holds(self, owner: int) -> bool:
        """Whether `owner` has a table."""
        return owner in self._tables

    def owners(self) -> Set[int]:
        """Everybody who has a table."""
        return self._tables.keys()

    def release(self, owner: int) -> None:
        """Give all of the owner's pages back; published ones stay cached, the end of the
        prefix to be forgotten first. An unknown owner raises KeyError."""
        for page in reversed(self._tables.pop(owner)):
            self._references[page] -= 1
            if self._references[page]:
                continue
            if page in self._keys:
                self._cached[page] = None
            else:
                self._free.append(page)

    def sole_pages(self, owner: int) -> int:
        """How many of the owner's pages nobody else holds: what a release gives back."""
        return sum(self._references[page] == 1 for page in self._tables[owner])

    def check(self) -> None:
        """Assert the contract above; O(pages)."""
        counted = Counter(page for table in self._tables.values() for page in table)
        held = {page for page, count in enumerate(self._references) if count}
        free, cached = set(self._free), set(self._cached)
        assert len(free) == len(self._free), "a page is free twice"
        assert not free & cached and not free & held and not cached & held, "places overlap"
        assert free | cached | held == set(range(1, self.num_pages)), "a page is lost"
        assert all(self._references[page] == n for page, n in counted.items()), "miscounted"
        assert held == counted.keys(), "a reference without a table"
        assert all(n == 1 or page in self._keys for page, n in counted.items()), "aliased"
        assert all(len(set(t)) == len(t) for t in self._tables.values()), "twice in a table"
        assert cached <= self._keys.keys(), "cached without a key"
        assert not free & self._keys.keys(), "free with a key"
        assert {k.digest: p for p, k in self._keys.items()} == self._published, "keys differ"

    def _hits(self, keys: Sequence[PageKey]) -> list[int]:
        hits: list[int] = []
        for key in keys:
            page = self._published.get(key.digest)
            if page is None or self._keys[page].tokens != key.tokens:
                break
            hits.append(page)
        return hits

    def _forget_oldest(self) -> int:
        page, _ = self._cached.popitem(last=False)
        del self._published[self._keys.pop(page).digest]
        self.version += 1
        return page
