"""Tokens that a step took from the one before it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from models.batch import IN_FLIGHT, RequestId, Row, RowResult, Sampling

NOTHING_DRAWN = 0


class Drawn:
    """What the last step drew, for a runner that has the tokens on the host: `remember` when
    a step was computed, `resolved` before the next one is."""

    def __init__(self) -> None:
        self._tokens: dict[RequestId, int] = {}

    def remember(self, rows: Sequence[Row], results: Mapping[RequestId, RowResult]) -> None:
        """A step was computed."""
        self._tokens = {
            row.request: tokens[-1] for row in rows if (tokens := results[row.request].tokens)
        }

    def resolved(self, rows: Sequence[Row]) -> list[Row]:
        """The rows with `IN_FLIGHT` replaced by the token that their request drew; those
        without it as they are. A request that drew nothing (its row or its step failed) has
        ended, and what is computed for it is dropped: it goes on from any token."""
        tokens, self._tokens = self._tokens, {}
        return [
            _with_token(row, tokens.get(row.request)) if row.tokens[-1] == IN_FLIGHT else row
            for row in rows
        ]


def _with_token(row: Row, token: int | None) -> Row:
    if token is None:
        # Plain, since what the request failed in may be what its options look at.
        row, token = replace(row, sampling=Sampling()), NOTHING_DRAWN
    return replace(row, tokens=[*row.tokens[:-1], token], output=[*row.output[:-1], token])
