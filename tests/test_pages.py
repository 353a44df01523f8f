"""The page allocator against a model of who holds what and what each page contains."""

from array import array
from hashlib import blake2b
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    precondition,
    rule,
)

from memory.host import HostFull, HostPages
from memory.pages import OutOfPages, PageAllocator
from memory.prefix import KeyChain, PageKey

PAGE = 2
SPACES = st.sampled_from(["", "salt"])
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=8)


class Owner:
    """What the machine knows of one owner: its tokens, how many are written, its table."""

    def __init__(self, id: int, namespace: str, tokens: list[int]) -> None:
        self.id, self.namespace, self.tokens = id, namespace, tokens
        self.chain = KeyChain(namespace, PAGE)
        self.written = 0
        self.table: list[int] = []


class PageMachine(RuleBasedStateMachine):
    """Pools of five pages of two tokens over two token ids: sharing, forgetting and refusal
    all happen within ten steps."""

    owners = Bundle("owners")

    def __init__(self) -> None:
        super().__init__()
        self.pages = PageAllocator(6)
        self.alive: dict[int, Owner] = {}
        self.content: dict[int, tuple[str, tuple[int, ...]]] = {}  # page -> whole prefix
        self.next_id = 0

    @rule(target=owners, namespace=SPACES, tokens=TOKENS)
    def open(self, namespace: str, tokens: list[int]) -> Owner:
        owner = Owner(self.next_id, namespace, tokens)
        self.next_id += 1
        keys = owner.chain.first((len(tokens) - 1) // PAGE, tokens)
        hits, unreferenced = self.pages.lookup(keys)
        free = self.pages.free_pages
        assert self.pages.open(owner.id, keys) == hits
        assert self.pages.free_pages == free - unreferenced
        owner.table = list(self.pages.table(owner.id))
        owner.written = hits * PAGE
        for index, page in enumerate(owner.table):
            prefix = tuple(tokens[: (index + 1) * PAGE])
            assert self.content[page] == (namespace, prefix), "another prompt's page"
        self.alive[owner.id] = owner
        return owner

    @rule(owner=owners, count=st.integers(1, 3))
    def grow(self, owner: Owner, count: int) -> None:
        if owner.id not in self.alive:
            return
        free = self.pages.free_pages
        if count > free:
            with pytest.raises(OutOfPages):
                self.pages.grow(owner.id, count)
            assert self.pages.free_pages == free
        else:
            self.pages.grow(owner.id, count)
            new = list(self.pages.table(owner.id))[len(owner.table) :]
            owner.table += new
            for page in new:
                self.content[page] = ("", ())
        assert list(self.pages.table(owner.id)) == owner.table, "a table is append-only"

    @rule(owner=owners, publishes=st.booleans())
    def fill(self, owner: Owner, publishes: bool) -> None:
        """Write the next page; the step returns; perhaps publish it."""
        index = owner.written // PAGE
        full = len(owner.tokens) - owner.written >= PAGE
        if owner.id not in self.alive or not full or index >= len(owner.table):
            return
        owner.written += PAGE
        page = owner.table[index]
        self.content[page] = (owner.namespace, tuple(owner.tokens[: owner.written]))
        if publishes:
            key = owner.chain.first(index + 1, owner.tokens)[index]
            self.pages.publish(owner.id, index, key)

    @rule(owner=consumes(owners))
    def release(self, owner: Owner) -> None:
        if owner.id not in self.alive:
            return
        sole, free = self.pages.sole_pages(owner.id), self.pages.free_pages
        self.pages.release(owner.id)
        assert self.pages.free_pages == free + sole
        del self.alive[owner.id]
        with pytest.raises(KeyError):
            self.pages.release(owner.id)

    @precondition(lambda self: self.alive)
    @rule()
    def contents_are_still_there(self) -> None:
        for owner in self.alive.values():
            for index in range(owner.written // PAGE):
                prefix = tuple(owner.tokens[: (index + 1) * PAGE])
                assert self.content[owner.table[index]] == (owner.namespace, prefix)

    @invariant()
    def contract_holds(self) -> None:
        self.pages.check()
        for owner in self.alive.values():
            assert list(self.pages.table(owner.id)) == owner.table


TestPageMachine = PageMachine.TestCase
TestPageMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def filled(pages: PageAllocator, owner: int, tokens: list[int], namespace: str = "") -> None:
    """Open, fill and publish a prompt's pages."""
    count = len(tokens) // PAGE
    keys = KeyChain(namespace, PAGE).first(count, tokens)
    have = pages.open(owner, keys)
    pages.grow(owner, count - have)
    for index in range(have, count):
        pages.publish(owner, index, keys[index])


def test_a_prompt_finds_the_pages_of_an_earlier_one() -> None:
    pages = PageAllocator(8)
    filled(pages, 1, [1, 2, 3, 4])
    keys = KeyChain("", PAGE).first(3, [1, 2, 3, 4, 5, 6])
    assert pages.open(2, keys) == 2
    assert list(pages.table(2)) == list(pages.table(1))


def test_another_salt_or_an_earlier_difference_misses() -> None:
    pages = PageAllocator(8)
    filled(pages, 1, [1, 2, 3, 4])
    assert pages.lookup(KeyChain("salt", PAGE).first(2, [1, 2, 3, 4])) == (0, 0)
    assert pages.lookup(KeyChain("", PAGE).first(2, [9, 2, 3, 4])) == (0, 0)


def test_a_hit_compares_the_tokens_and_not_the_digest_alone() -> None:
    pages = PageAllocator(8)
    filled(pages, 1, [1, 2])
    [key] = KeyChain("", PAGE).first(1, [1, 2])
    assert pages.lookup([PageKey(key.digest, (7, 7))]) == (0, 0)


def test_the_end_of_a_prefix_is_forgotten_before_its_beginning() -> None:
    pages = PageAllocator(4)
    filled(pages, 1, [1, 2, 3, 4])
    pages.release(1)
    pages.open(2, [])
    pages.grow(2, 2)
    assert pages.lookup(KeyChain("", PAGE).first(2, [1, 2, 3, 4])) == (1, 1)


def test_without_a_prefix_cache_nothing_is_kept() -> None:
    pages = PageAllocator(8, prefix_cache=False)
    filled(pages, 1, [1, 2, 3, 4])
    pages.release(1)
    assert pages.cached_pages == 0
    assert pages.lookup(KeyChain("", PAGE).first(2, [1, 2, 3, 4])) == (0, 0)


def test_no_namespace_can_be_spelled_like_a_page_of_another() -> None:
    def digest(namespace: str) -> bytes:
        return blake2b(namespace.encode(), digest_size=16).digest()

    page, tail = (3, 4), (5, 6)
    # A namespace whose hash is text, as an attacker's own has to be: one in 65,000.
    victim = next(name for name in map(str, count()) if digest(name).isascii())
    forged = (digest(victim) + array("q", page).tobytes()).decode()
    pages = PageAllocator(8)
    theirs = KeyChain(victim, PAGE)
    pages.open(1, [])
    pages.grow(1, 2)
    for index, key in enumerate(theirs.first(2, [*page, *tail])):
        pages.publish(1, index, key)
    assert pages.lookup(KeyChain(forged, PAGE).first(1, tail)) == (0, 0)


def test_scratch_page_0_is_never_given_away() -> None:
    pages = PageAllocator(4)
    pages.open(1, [])
    pages.grow(1, 3)
    assert sorted(pages.table(1)) == [1, 2, 3]


def test_a_pool_of_scratch_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="num_pages is 1"):
        PageAllocator(1)


def test_host_pages_are_taken_all_or_not_at_all() -> None:
    host = HostPages(3)
    host.take(1, 2)
    with pytest.raises(HostFull):
        host.take(2, 2)
    assert not host.holds(2)
    host.check()
    host.release(1)
    assert host.free_pages == 3
    with pytest.raises(KeyError):
        host.release(1)
