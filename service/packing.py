"""Log-probabilities as bytes: thousands of tokens with 20 alternatives each may wait for their
reader, and as objects they are 13 times as large.

One record a token: the number of alternatives, then id and log-probability of the token and of
each alternative, in the machine's own byte order. A float holds what the wire does.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from struct import Struct

from models.batch import TokenLogprob

LEAST = -3.4e38  # of a float; the difference of two of them may be below


def pack(entries: Iterable[TokenLogprob]) -> bytes:
    """The records of some tokens."""
    return b"".join(map(_packed, entries))


def unpack(packed: bytes | bytearray) -> Iterator[TokenLogprob]:
    """The tokens of some records."""
    for place in _places(packed):
        _, token, logprob, *rest = _record(packed[place]).unpack_from(packed, place)
        yield TokenLogprob(token, logprob, tuple(zip(rest[::2], rest[1::2], strict=True)))


def take(packed: bytearray, tokens: int) -> bytearray:
    """Take the records of the first tokens out; all, where there are fewer."""
    end = next((place for at, place in enumerate(_places(packed)) if at == tokens), len(packed))
    taken = packed[:end]
    del packed[:end]
    return taken


def count(packed: bytes | bytearray) -> int:
    """How many tokens."""
    return sum(1 for _ in _places(packed))


def _packed(entry: TokenLogprob) -> bytes:
    top = entry.top
    record = _record(len(top))
    try:
        return record.pack(len(top), entry.token, entry.logprob, *chain.from_iterable(top))
    except OverflowError:
        least = tuple((token, max(LEAST, logprob)) for token, logprob in top)
        return _packed(TokenLogprob(entry.token, max(LEAST, entry.logprob), least))


def _places(packed: bytes | bytearray) -> Iterator[int]:
    """Where each record begins."""
    place = 0
    while place < len(packed):
        yield place
        place += _record(packed[place]).size


@cache
def _record(alternatives: int) -> Struct:
    return Struct("=B" + "if" * (1 + alternatives))
