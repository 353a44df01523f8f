"""A deterministic model without weights, for tests and for trying the service in a second.

Its next token depends on every earlier token and its position, read back through the page
table alone: a wrong page, slot or copy changes what it says. No torch.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from models.ahead import Drawn
from models.batch import (
    Landed,
    Landing,
    RequestId,
    Row,
    RowResult,
    StepBatch,
    StepResult,
    TokenLogprob,
)
from models.errors import ModelError, PromptTooLong

EOS = 256
VOCABULARY = 257
CONTEXT = 65536
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz ", dtype=np.uint8)
_LIKELY = math.log(0.5)
_OTHER = math.log(0.5 / (VOCABULARY - 1))
_EMPTY = -1


def refuse_ranks(size: int) -> None:
    """ModelError where several are to share it."""
    if size > 1:
        raise ModelError(
            "engine.tensor_parallel must be 1: the toy model has no layers to split"
        )


class ToyRunner:
    """`models.batch.AheadRunner` over int64 "keys" in pages [pages, page_size]; a step is
    over when `start` returns.

    After a prefix the toy gives half of the probability to one token, drawn from letters
    and, one time in about a hundred, end of sequence; the rest is even. Greedy and seeded
    requests differ by their seed alone; filters and penalties are not its business.
    """

    def __init__(self, num_pages: int, page_size: int, host_pages: int = 0) -> None:
        self._pool = np.full((num_pages, page_size), _EMPTY, dtype=np.int64)
        self._host = np.full((host_pages, page_size), _EMPTY, dtype=np.int64)
        self._drawn = Drawn()

    def start(self, batch: StepBatch) -> Landing:
        """Compute a step that may go on from the tokens of the one before."""
        resolved = replace(batch, rows=self._drawn.resolved(batch.rows))
        result = self.step(resolved)
        self._drawn.remember(resolved.rows, result.rows)
        return Landed(result)

    def step(self, batch: StepBatch) -> StepResult:
        """Compute one step."""
        copy_s = self._copy(batch) if batch.swap_out or batch.swap_in else 0.0
        for row in batch.rows:
            self._write(row)
        rows: Mapping[RequestId, RowResult] = {r.request: self._result(r) for r in batch.rows}
        return StepResult(rows, copy_s=copy_s)

    def _copy(self, batch: StepBatch) -> float:
        started_s = time.perf_counter()
        if batch.swap_out:
            source, target = np.array(batch.swap_out).T
            self._host[target] = self._pool[source]
        if batch.swap_in:
            source, target = np.array(batch.swap_in).T
            self._pool[target] = self._host[source]
        return time.perf_counter() - started_s

    def _write(self, row: Row) -> None:
        positions = np.arange(row.start, row.start + len(row.tokens))
        page_size = self._pool.shape[1]
        pages = np.asarray(row.pages)[positions // page_size]
        self._pool[pages, positions % page_size] = np.asarray(row.tokens, dtype=np.int64)

    def _result(self, row: Row) -> RowResult:
        end = row.start + len(row.tokens)
        likely = self._likely(row, end)
        prompt_logprobs = self._prompt_logprobs(row, likely, end)
        if not row.samples:
            return RowResult(prompt_logprobs=prompt_logprobs)
        token = int(likely[-1])
        if token in row.sampling.stop_ids and len(row.output) < row.sampling.min_tokens:
            token = int(_LETTERS[0])
        wanted = row.sampling.logprobs
        logprobs = () if wanted is None else (_logprob(token, int(likely[-1]), wanted),)
        return RowResult((token,), logprobs, prompt_logprobs)

    def _likely(self, row: Row, end: int) -> NDArray[np.int64]:
        """The likely successor of each of the row's positions, from the pages."""
        keys = self._pool[np.asarray(row.pages)].ravel()[:end]
        if (keys == _EMPTY).any():
            raise RuntimeError(f"request {row.request} reads a slot that nobody wrote")
        places = np.arange(1, end + 1, dtype=np.int64)
        with np.errstate(over="ignore"):
            mixed = np.cumsum((keys + 1) * (places * 2654435761 % 1000003))[row.start :]
            seed = row.sampling.seed % 1000003 if row.sampling.temperature else 0
            mixed = (mixed + seed * 7919) * 6364136223846793005 + 1442695040888963407
        mixed = (mixed >> 33) & 0x3FFFFFFF
        letters = _LETTERS[mixed % len(_LETTERS)].astype(np.int64)
        return np.where(mixed % 97 == 0, EOS, letters)

    def _prompt_logprobs(
        self, row: Row, likely: NDArray[np.int64], end: int
    ) -> tuple[TokenLogprob, ...]:
        wanted = row.sampling.prompt_logprobs
        if wanted is None:
            return ()
        positions = range(row.start, min(end, len(row.prompt) - 1))
        return tuple(
            _logprob(row.prompt[p + 1], int(likely[p - row.start]), wanted) for p in positions
        )


def _logprob(token: int, likely: int, alternatives: int) -> TokenLogprob:
    others = [t for t in range(alternatives) if t != likely]
    top = [(likely, _LIKELY), *((t, _OTHER) for t in others)][:alternatives]
    return TokenLogprob(token, _LIKELY if token == likely else _OTHER, tuple(top))


class ToyTokenizer:
    """UTF-8 bytes as token ids, and one more that ends a sequence."""

    vocab_size = VOCABULARY
    eos_ids: tuple[int, ...] = (EOS,)
    rule = "bytes"
    has_chat_template = True

    def least_tokens(self, text: str) -> int:
        """All of them."""
        return len(text.encode())

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """One id a byte; there is no beginning of sequence."""
        return list(text.encode())

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Undecodable bytes become U+FFFD."""
        end = b"" if skip_special_tokens else b"<eos>"
        return b"".join(end if i == EOS else bytes([i]) for i in ids).decode(errors="replace")

    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        add_generation_prompt: bool = True,
        most_tokens: int | None = None,
    ) -> list[int]:
        """Lines of `role: content`."""
        lines = [f"{m['role']}: {m['content']}\n" for m in messages]
        text = "".join(lines) + ("assistant: " if add_generation_prompt else "")
        least = self.least_tokens(text)
        if most_tokens is not None and least > most_tokens:
            raise PromptTooLong(least)
        return self.encode(text)
