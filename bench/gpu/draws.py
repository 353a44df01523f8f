"""Tokens drawn on the device against those the CPU draws from the same logits, and a row's
result alone against that among others.

The two round sums differently. Where a draw falls within a millionth of an edge of the
distribution, or a filter's edge within as much of a token, another token may be right: that is
rare enough for a count to tell it from a mistake.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bench.gpu.findings import Findings
from bench.gpu.place import Place
from models.batch import RequestId, Row, RowResult, Sampling, TokenLogprob
from models.device_sampling import draw, prompt_logprobs
from models.sampling import choose
from models.sampling import prompt_logprobs as prompt_logprobs_on_cpu

SPREAD = 3.0
ALTERNATIVES = 5
CLOSE = 1e-4  # of log-probabilities; float32 rounds one of -20 to 2e-6
TIES = 0.02  # of the rows that are sampled one way

PENALISED = Sampling(
    repetition_penalty=1.3,
    frequency_penalty=0.4,
    presence_penalty=0.2,
    logit_bias=((3, 2.0), (9, -100.0)),
    min_tokens=9,
    stop_ids=(0, 5),
)
WAYS: dict[str, Sampling] = {
    "greedy": Sampling(),
    "greedy, penalties": PENALISED,
    "temperature": Sampling(temperature=0.8),
    "top-k": Sampling(temperature=1.0, top_k=40),
    "top-p": Sampling(temperature=1.0, top_p=0.9),
    "min-p": Sampling(temperature=1.0, min_p=0.05),
    "top-k, top-p": Sampling(temperature=1.3, top_k=400, top_p=0.8),
    "all": replace(PENALISED, temperature=0.9, top_k=50, top_p=0.95, min_p=0.01),
}


def check(place: Place, findings: Findings) -> None:
    vocab, count = (49152, 64) if place.on_gpu else (1003, 8)
    ways = list(itertools.product(WAYS, (None, ALTERNATIVES)))
    rows = [row for way, scored in ways for row in _rows(WAYS[way], scored, count, vocab)]
    generator = torch.Generator().manual_seed(7)
    logits = SPREAD * torch.randn(len(rows), vocab, generator=generator)
    logits[0, 1], logits[count, 2] = torch.nan, torch.inf
    on_device = logits.to(place.device)
    found, expected = draw(on_device, rows).fetch()(), choose(logits, rows)
    same = 1.0
    for (way, scored), at in zip(ways, range(0, len(rows), count), strict=True):
        name = way if scored is None else f"{way}, log-probabilities"
        part = slice(at, at + count)
        same = min(same, _compare(findings, name, found[part], expected[part]))
    findings.figure("same tokens, in the way with fewest", same)
    _alone(findings, on_device, rows, found)
    _prompt(findings, on_device, logits)


def _rows(sampling: Sampling, scored: int | None, count: int, vocab: int) -> Iterator[Row]:
    """Each with a past and a seed of its own."""
    chance = random.Random(str(sampling))
    for _ in range(count):
        prompt, output = (
            [chance.randrange(vocab) for _ in range(chance.randrange(1, 30))] for _ in range(2)
        )
        output += output[:1] * chance.randrange(3)
        how = replace(sampling, seed=chance.getrandbits(64), logprobs=scored)
        known = [*prompt, *output]
        yield Row(RequestId(0), known[-1:], len(known) - 1, [1], True, how, prompt, output)


def _compare(
    findings: Findings, name: str, found: Sequence[RowResult], expected: Sequence[RowResult]
) -> float:
    """The share of rows with the same token."""
    pairs = list(zip(found, expected, strict=True))
    errors = sum(mine.error != cpu.error for mine, cpu in pairs)
    findings.expect(not errors, f"{name}: {errors} rows fail on one side alone")
    others = sum(mine.tokens != cpu.tokens for mine, cpu in pairs)
    most = max(1, int(TIES * len(pairs)))
    findings.expect(others <= most, f"{name}: {others} of {len(pairs)} tokens differ")
    same = [pair for pair in pairs if pair[0].tokens == pair[1].tokens]
    apart = sum(not _close(mine.logprobs, cpu.logprobs) for mine, cpu in same)
    findings.expect(not apart, f"{name}: {apart} rows' log-probabilities differ")
    return len(same) / len(pairs)


def _alone(
    findings: Findings, logits: Tensor, rows: Sequence[Row], together: Sequence[RowResult]
) -> None:
    """Equal in every bit, log-probabilities included."""
    changed = 0
    for i, (row, beside) in enumerate(zip(rows, together, strict=True)):
        (alone,) = draw(logits[i : i + 1], [row]).fetch()()
        changed += alone != beside
    findings.expect(not changed, f"{changed} of {len(rows)} rows change with their company")


def _prompt(findings: Findings, on_device: Tensor, logits: Tensor) -> None:
    healthy = logits.isfinite().all(1)
    targets = list(range(7, 7 + int(healthy.sum())))
    found = prompt_logprobs(on_device[healthy.to(on_device.device)], targets, ALTERNATIVES)()
    expected = prompt_logprobs_on_cpu(logits[healthy], targets, ALTERNATIVES)
    findings.expect(_close(found, expected), "log-probabilities of prompts differ")


def _close(found: Sequence[TokenLogprob], expected: Sequence[TokenLogprob]) -> bool:
    """The same tokens in the same order, and nearly the same values."""
    mine, theirs = _flat(found), _flat(expected)
    return [token for token, _ in mine] == [token for token, _ in theirs] and all(
        abs(a - b) < CLOSE for (_, a), (_, b) in zip(mine, theirs, strict=True)
    )


def _flat(entries: Sequence[TokenLogprob]) -> list[tuple[int, float]]:
    return [pair for entry in entries for pair in ((entry.token, entry.logprob), *entry.top)]
