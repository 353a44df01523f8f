"""Page keys out of a trace's block names: what is shared is known, tokens are not."""

from collections.abc import Sequence
from struct import Struct

from bench.simulation.mooncake import BLOCK_TOKENS
from memory.prefix import PageKey

_DIGEST = Struct(">qq")


class BlockKeys:
    """`memory.prefix.Keys` of a request whose prompt consists of named blocks.

    The key of a page is its block's name and its place, so two requests share it when they
    share the block. Pages with output in them, or of a prompt without names, have keys that
    only this request has: a victim that comes back finds them again, nobody else does.
    `page_size` must divide a block.
    """

    def __init__(
        self, request: int, prompt_tokens: int, blocks: Sequence[int], page_size: int
    ) -> None:
        self._own = -1 - request  # block names are not negative
        self._blocks = blocks
        self._per_block = BLOCK_TOKENS // page_size
        self._prompt_pages = prompt_tokens // page_size if blocks else 0
        self._keys: list[PageKey] = []

    def first(self, count: int, tokens: Sequence[int]) -> list[PageKey]:
        """Keys of the first `count` pages."""
        for index in range(len(self._keys), count):
            shared = index < self._prompt_pages
            name = self._blocks[index // self._per_block] if shared else self._own
            self._keys.append(PageKey(_DIGEST.pack(name, index), ()))
        return self._keys[:count]
