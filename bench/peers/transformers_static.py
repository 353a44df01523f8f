"""`transformers.generate` in left-padded batches: static batching as one writes it by hand.

    python -m bench.peers.transformers_static --checkpoint FOLDER --dtype float32 fixed

A batch runs until its longest answer is done, and the next starts then. Tokens past a
request's own length are computed and thrown away; only wanted tokens count. `generate`
gives nothing until a batch ends, so a request's whole answer arrives then.
"""

import argparse
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from bench.samples import Answer
from bench.turns import named, own_stdout, take_turns
from bench.workload import Job

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
PAD = 2


def batches(model: "PreTrainedModel", jobs: Sequence[Job], at_once: int) -> list[Answer]:
    """One batch after the other, in the order given."""
    answers = []
    start_s = time.perf_counter()
    for first in range(0, len(jobs), at_once):
        batch = jobs[first : first + at_once]
        sent_s = time.perf_counter() - start_s
        _generate(model, batch)
        now_s = time.perf_counter() - start_s
        answers += [
            Answer(sent_s, sent_s, now_s, len(job.prompt), ((now_s, job.max_tokens),))
            for job in batch
        ]
    return answers


def _generate(model: "PreTrainedModel", batch: Sequence[Job]) -> None:
    longest = max(len(job.prompt) for job in batch)
    tokens = max(job.max_tokens for job in batch)
    padding = [longest - len(job.prompt) for job in batch]
    ids = [[PAD] * pad + list(job.prompt) for pad, job in zip(padding, batch, strict=True)]
    mask = [[0] * pad + [1] * (longest - pad) for pad in padding]
    with torch.inference_mode():
        model.generate(
            input_ids=torch.tensor(ids),
            attention_mask=torch.tensor(mask),
            do_sample=False,
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            pad_token_id=PAD,
        )


def main() -> None:
    from transformers import AutoModelForCausalLM  # which takes seconds

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", required=True, help="Hugging Face folder")
    parser.add_argument("--dtype", default="bfloat16", choices=tuple(DTYPES))
    parser.add_argument("workload", nargs="*")
    options = parser.parse_args()
    say = own_stdout()
    torch.set_num_threads(os.cpu_count() or 1)
    model = AutoModelForCausalLM.from_pretrained(
        options.checkpoint, dtype=DTYPES[options.dtype], attn_implementation="sdpa"
    )
    batches(model, [Job(tuple(range(100, 228)), 2)] * 2, 2)

    def run(jobs: Sequence[Job], at_once: int) -> list[Answer]:
        return batches(model, jobs, at_once)

    take_turns(f"transformers {options.dtype} static", run, named(options.workload), say)


if __name__ == "__main__":
    main()
