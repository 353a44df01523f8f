"""Keeps what a message says from being taken for the special tokens that it spells.

A template turns messages into one text, and in that text a special token is whatever reads
like one. So the part of a message from its first to its last special token is replaced by a
mark before rendering, and the rendered text is cut at the marks again: what stood there is
encoded as plain text. Messages that spell none are left as they are.
"""

import re
import secrets
from collections.abc import Iterable, Iterator


class Quoting:
    """For one rendering. The marks are letters and digits, which templates leave alone, and
    nobody can guess them."""

    def __init__(self, special: Iterable[str]) -> None:
        longest_first = sorted(filter(None, special), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._mark = f"q{secrets.token_hex(8)}q"
        self._hidden: list[str] = []

    def hide(self, text: str) -> str:
        """The text with a mark in place of all special tokens and what is between them."""
        start, end = len(text), 0
        for found in self._special.finditer(text):
            start, end = min(start, found.start()), found.end()
        if not end:
            return text
        self._hidden.append(text[start:end])
        return f"{text[:start]}{self._mark}{len(self._hidden) - 1}x{text[end:]}"

    def pieces(self, rendered: str) -> Iterator[tuple[str, bool]]:
        """The rendered text in pieces, and whether each is what a mark stood for."""
        for place, piece in enumerate(re.split(f"{self._mark}([0-9]+)x", rendered)):
            if place % 2:
                yield self._hidden[int(piece)], True
            elif piece:
                yield piece, False
