"""Keys of full pages: a hash chain from token 0 on.

A page's key covers its own tokens, all tokens before it and the namespace (model, adapter,
the caller's cache salt), so two prompts share a page only when they agree up to its end.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PageKey:
    """`digest` names the chain up to this page; `tokens` are the page's own, compared on
    every hit so that a collision cannot serve another prompt's page."""

    digest: bytes
    tokens: tuple[int, ...]


class Keys(Protocol):
    """Where the keys of one request's pages come from."""

    def first(self, count: int, tokens: Sequence[int]) -> list[PageKey]: ...


class KeyChain:
    """Keys of one request's pages, made on demand and kept: tokens are only appended."""

    def __init__(self, namespace: str, page_size: int) -> None:
        self._page_size = page_size
        # Its own kind of hash: no namespace can be spelled so that it equals a page's key.
        root = blake2b(namespace.encode(), digest_size=16, person=b"namespace")
        self._root = root.digest()
        self._keys: list[PageKey] = []

    def first(self, count: int, tokens: Sequence[int]) -> list[PageKey]:
        """Keys of the first `count` pages of `tokens`, which has at least that many."""
        while len(self._keys) < count:
            start = len(self._keys) * self._page_size
            page = tuple(tokens[start : start + self._page_size])
            assert len(page) == self._page_size, "only full pages have keys"
            parent = self._keys[-1].digest if self._keys else self._root
            digest = blake2b(parent + array("q", page).tobytes(), digest_size=16).digest()
            self._keys.append(PageKey(digest, page))
        return self._keys[:count]
