"""What a model's files are served as, and what transformers computes of them: greedy tokens
after prompts of three lengths."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from models.load import LoadOptions, load
from tests.test_llama import Request, prompt, run

PROMPTS = [prompt(length, seed=length) for length in (1, 7, 40)]
TOKENS = 40
TIE = 1e-4


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny products gain nothing by threads, and wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def options(path: Path) -> LoadOptions:
    return LoadOptions(str(path), dtype="fp32", num_pages=64, page_size=4)


def in_transformers(folder: Path) -> PreTrainedModel:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="eager",
        local_files_only=True,
        trust_remote_code=False,
    )
    return model.eval()


def served(path: Path) -> list[list[int]]:
    """Greedy tokens after each prompt."""
    runner = load(options(path)).runner
    requests = [
        Request(ids, list(range(1 + 21 * i, 1 + 21 * i + 20)), id=i)
        for i, ids in enumerate(PROMPTS)
    ]
    run(runner, requests, steps=TOKENS)
    return [request.output for request in requests]


def assert_same(model: torch.nn.Module, path: Path) -> None:
    """That the model would have said the same tokens, ties apart."""
    for ids, output in zip(PROMPTS, served(path), strict=True):
        assert len(output) == TOKENS
        with torch.inference_mode():
            logits = model(torch.tensor([[*ids, *output]])).logits[0, len(ids) - 1 : -1]
        best, second = logits.topk(2).values.T
        wrong = (logits.argmax(-1) != torch.tensor(output)) & (best - second >= TIE)
        assert not wrong.any(), (len(ids), wrong.nonzero().flatten().tolist())
