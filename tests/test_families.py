"""Every family on every setting: backend, page size, chunk, cache and batch crossed."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch

from models.batch import Sampling
from models.load import LoadOptions, load
from service.messages import Limits, Submit
from tests.cores import make_core, run
from tests.test_llama import BACKENDS, folders, hf, prompt
from tests.tiny_models import KINDS

__all__ = ["folders"]

PROMPTS = [prompt(length, seed=length) for length in (1, 5, 15, 40)]
TOKENS = 4
PAGE_SIZES = (1, 16, 64)
CHUNKS = (7, 512)
TIE = 1e-4


@cache
def scored(kind: str, tokens: tuple[int, ...]) -> torch.Tensor:
    """transformers' logits after each token."""
    with torch.inference_mode():
        logits: torch.Tensor = hf(kind)(torch.tensor([tokens])).logits[0]
    return logits


def differs(kind: str, ids: list[int], output: list[int]) -> bool:
    """Whether transformers would have said something else, ties apart."""
    logits = scored(kind, (*ids, *output))[len(ids) - 1 : -1]
    best, second = logits.topk(2).values.T
    wrong = (logits.argmax(-1) != torch.tensor(output)) & (best - second >= TIE)
    return bool(wrong.any())


def answers(
    folder: Path, backend: str, page_size: int, chunk: int
) -> Iterator[list[list[int]]]:
    """Of all prompts: together on a cold cache, together on a warm one, each alone."""
    pages = 512 // page_size
    options = LoadOptions(str(folder), "fp32", backend, page_size, num_pages=pages)
    runner = load(options).runner
    for rounds, at_once in ((2, len(PROMPTS)), (1, 1)):
        core = make_core(pages - 1, page_size, rows=at_once, budget=chunk, audit=None)
        for _ in range(rounds):
            for id, ids in enumerate(PROMPTS):
                core.submit(Submit(id, ids, Sampling(), Limits(TOKENS), arrival_s=0.0))
            found = run(core, runner)
            yield [found.tokens[id] for id in range(len(PROMPTS))]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_those_of_transformers_on_every_setting(
    folders: Path,
    kind: str,
    backend: str,
) -> None:
    for page_size, chunk in product(PAGE_SIZES, CHUNKS):
        for outputs in answers(folders / kind, backend, page_size, chunk):
            for ids, output in zip(PROMPTS, outputs, strict=True):
                assert len(output) == TOKENS
                assert not differs(kind, ids, output), (page_size, chunk, len(ids))
