"""Who holds which page of the host store, where swapped requests wait."""

from collections.abc import Sequence, Set


class HostFull(RuntimeError):
    """The host store cannot take so many pages now."""


class HostPages:
    """Host pages 0 .. num_pages - 1. A call that raises changes nothing."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))
        self._tables: dict[int, list[int]] = {}

    @property
    def free_pages(self) -> int:
        """Pages that can be taken now."""
        return len(self._free)

    def take(self, owner: int, pages: int) -> Sequence[int]:
        """Give `owner`, who has none, so many pages, or raise HostFull."""
        if owner in self._tables:
            raise ValueError(f"owner {owner} has host pages already")
        if pages > len(self._free):
            raise HostFull(f"{pages} host pages wanted, {len(self._free)} free")
        table = [self._free.pop() for _ in range(pages)]
        self._tables[owner] = table
        return table

    def table(self, owner: int) -> Sequence[int]:
        """The owner's host pages in order of position."""
        return self._tables[owner]

    def holds(self, owner: int) -> bool:
        """Whether `owner` has a table."""
        return owner in self._tables

    def owners(self) -> Set[int]:
        """Everybody who has a table."""
        return self._tables.keys()

    def release(self, owner: int) -> None:
        """Give the owner's pages back. An unknown owner raises KeyError."""
        self._free += reversed(self._tables.pop(owner))

    def check(self) -> None:
        """Assert that free and held pages are disjoint and together all pages."""
        held = [page for table in self._tables.values() for page in table]
        assert sorted(self._free + held) == list(range(self.num_pages)), "host pages lost"
