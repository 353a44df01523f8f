"""Greedy answers from a runner alone, without the core and what it needs."""

from collections.abc import Sequence
from itertools import islice

from bench.gpu.room import PAGE_SIZE
from models.batch import RequestId, Row, Runner, Sampling, StepBatch

GREEDY = Sampling()


def lengths(requests: int, max_tokens: int) -> list[int]:
    """Of the answers: one request after the other has had enough, so that steps shrink."""
    return [max(1, max_tokens - 2 * id) for id in range(requests)]


def greedy(
    runner: Runner, prompts: Sequence[Sequence[int]], max_tokens: int, num_pages: int
) -> dict[int, list[int]]:
    """All prompts in one step, then all rows in each step. RuntimeError for a row that
    fails."""
    limits = lengths(len(prompts), max_tokens)
    sizes = [len(prompt) + limit for prompt, limit in zip(prompts, limits, strict=True)]
    pages = iter(range(num_pages - 1, 0, -1))
    tables = [list(islice(pages, -(-size // PAGE_SIZE))) for size in sizes]
    answers: dict[int, list[int]] = {id: [] for id in range(len(prompts))}
    while open_ := [id for id, tokens in answers.items() if len(tokens) < limits[id]]:
        rows = [_row(id, prompts[id], answers[id], tables[id]) for id in open_]
        results = runner.step(StepBatch(rows)).rows
        for id in open_:
            result = results[RequestId(id)]
            if result.error is not None:
                raise RuntimeError(f"request {id} failed: {result.error}")
            answers[id] += result.tokens
    return answers


def _row(id: int, prompt: Sequence[int], output: list[int], pages: list[int]) -> Row:
    tokens = output[-1:] or list(prompt)
    start = len(prompt) + len(output) - len(tokens)
    return Row(RequestId(id), tokens, start, pages, True, GREEDY, prompt, list(output))
