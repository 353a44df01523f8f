"""How much text a token can stand for at most: what makes a text surely too long, without
tokenising it."""

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer as Encoder
from tokenizers.models import BPE

COMPOSING = 9
"""NFC makes a ninth of the bytes of a text at most: a character has up to three times the
bytes of its parts, and parts have up to three times those of what they are put together to."""
CHARACTER = 4
"""Bytes at most, of one that stands for a control token in a chat."""
_SHOWN = frozenset([*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)])
"""Bytes that byte-level vocabularies write as the character of that number."""
_KEEPS = ("Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")


@dataclass(frozen=True, slots=True)
class Coverage:
    """`longest` is in bytes of the text; bytes in `dropped` become no token at all."""

    longest: int
    dropped: bytes = b""

    def least_tokens(self, text: str) -> int:
        """A lower bound of the number of tokens of the text."""
        return -(-len(text.encode().translate(None, self.dropped)) // self.longest)


def coverage(encoder: Encoder) -> Coverage | None:
    """None for a tokenizer that may make a token of any length of text: one that drops white
    space, say, or has one token for all that it does not know."""
    added = encoder.get_added_tokens_decoder().values()
    if not isinstance(encoder.model, BPE) or any(t.lstrip or t.rstrip for t in added):
        return None
    shrinks = _shrinks(_state(encoder.normalizer))
    by_bytes = _cuts_bytes(_state(encoder.pre_tokenizer))
    tokens = encoder.get_vocab(with_added_tokens=False)
    dropped = _dropped(tokens) if by_bytes else b""
    if shrinks is None or by_bytes is None:
        return None
    if dropped and (encoder.model.unk_token is not None or shrinks > 1):
        return None
    if not by_bytes and not (encoder.model.byte_fallback and _has_bytes(tokens)):
        return None
    # A character of a token that is cut by bytes is one byte.
    sizes = [len(token) if by_bytes else len(token.encode()) for token in tokens]
    sizes += [len(token.content.encode()) for token in added]
    return Coverage(shrinks * max(*sizes, CHARACTER), dropped)


def _state(part: Any) -> Mapping[str, Any] | None:
    return None if part is None else json.loads(part.__getstate__())


def _shrinks(normalizer: Mapping[str, Any] | None) -> int | None:
    """How many bytes become one at most; None where that has no limit."""
    match normalizer:
        case None | {"type": "Prepend"}:
            return 1
        case {"type": "NFC"}:
            return COMPOSING
        case {"type": "Replace", "pattern": {"String": str(found)}, "content": str(new)}:
            return 1 if len(new.encode()) >= len(found.encode()) else None
        case {"type": "Sequence", "normalizers": inner}:
            each = [factor for part in inner if (factor := _shrinks(part))]
            return math.prod(each) if len(each) == len(inner) else None
        case _:
            return None


def _cuts_bytes(cutter: Mapping[str, Any] | None) -> bool | None:
    """Whether text is taken byte by byte; None where some of it may be dropped."""
    match cutter:
        case {"type": "ByteLevel"}:
            return True
        case None | {"type": "Metaspace" | "Digits"}:
            return False
        case {"type": "Split" | "Punctuation", "behavior": behavior} if behavior in _KEEPS:
            return False
        case {"type": "Sequence", "pretokenizers": inner}:
            each = [_cuts_bytes(part) for part in inner]
            return None if None in each else any(each)
        case _:
            return None


def _dropped(tokens: Mapping[str, int]) -> bytes:
    """Bytes that the vocabulary has no token for."""
    others = map(chr, itertools.count(256))
    symbols = (chr(byte) if byte in _SHOWN else next(others) for byte in range(256))
    return bytes(byte for byte, symbol in enumerate(symbols) if symbol not in tokens)


def _has_bytes(tokens: Mapping[str, int]) -> bool:
    return all(f"<0x{byte:02X}>" in tokens for byte in range(256))
