"""Reads the Mooncake traces: one JSON object a line with `timestamp` (milliseconds),
`input_length`, `output_length` and `hash_ids`, one for each 512 tokens of the prompt, equal
where everything up to there is equal.

They came with "Mooncake: Trading More Storage for Less Computation" (Qin et al., FAST 2025).
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.trace import Arrival, in_order

BLOCK_TOKENS = 512


class _Line(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


def read_mooncake(path: Path) -> list[Arrival]:
    """Read a trace file; raises ValueError with file and line when it is not one."""
    with path.open("rb") as file:
        return in_order(_arrivals(path, file))


def _arrivals(path: Path, lines: Iterator[bytes]) -> Iterator[Arrival]:
    decoder = msgspec.json.Decoder(_Line)
    for number, text in enumerate(lines, start=1):
        try:
            line = decoder.decode(text)
        except msgspec.DecodeError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
        if len(line.hash_ids) != -(-line.input_length // BLOCK_TOKENS):
            raise ValueError(f"{path}:{number}: {BLOCK_TOKENS} tokens a hash id expected")
        yield Arrival(
            line.timestamp / 1000, line.input_length, line.output_length, line.hash_ids
        )
