"""vLLM in its own process without a server, driven step by step.

Run by the interpreter of vLLM's environment, from the project's root. README.md in this
folder says how to make that environment and the checkpoint.
"""

import argparse
import importlib
import os
import time
from collections.abc import Sequence
from typing import Any

from bench.samples import Answer
from bench.turns import named, own_stdout, take_turns
from bench.workload import MAX_RUNNING, Job

BEST = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "OMP_NUM_THREADS": str(os.cpu_count()),
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
}
WARM_UP = [Job(tuple(range(100, 228)), 16)] * MAX_RUNNING


def drive(engine: Any, jobs: Sequence[Job], at_once: int) -> list[Answer]:
    """Keep `at_once` requests in the engine until all are answered."""
    waiting = list(enumerate(jobs))[::-1]
    sent: dict[str, tuple[Job, float]] = {}
    seen: dict[str, list[tuple[float, int]]] = {}
    answers: list[Answer] = []
    start = time.perf_counter()
    while waiting or sent:
        while waiting and len(sent) < at_once:
            index, job = waiting.pop()
            engine.add_request(str(index), {"prompt_token_ids": list(job.prompt)}, greedy(job))
            sent[str(index)], seen[str(index)] = (job, time.perf_counter() - start), []
        outputs = engine.step()
        now_s = time.perf_counter() - start
        for output in outputs:
            got = seen[output.request_id]
            new = len(output.outputs[0].token_ids) - sum(tokens for _, tokens in got)
            if new:
                got.append((now_s, new))
            if output.finished:
                job, at_s = sent.pop(output.request_id)
                answers.append(Answer(at_s, at_s, now_s, len(job.prompt), tuple(got)))
    return answers


def greedy(job: Job) -> Any:
    """Exactly `max_tokens` tokens, as ids."""
    return importlib.import_module("vllm").SamplingParams(
        temperature=0.0,
        max_tokens=job.max_tokens,
        min_tokens=job.max_tokens,
        ignore_eos=True,
        detokenize=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True, help="Hugging Face folder")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--eager", action="store_true", help="do not compile")
    parser.add_argument("workload", nargs="*", help="none: read names from standard input")
    options = parser.parse_args()
    for name, value in BEST.items():
        os.environ.setdefault(name, value)
    say = own_stdout()
    llm = importlib.import_module("vllm").LLM(
        model=options.checkpoint,
        dtype=options.dtype,
        max_num_seqs=MAX_RUNNING,
        max_model_len=1024,
        enable_prefix_caching=False,
        enforce_eager=options.eager,
    )

    def run(jobs: Sequence[Job], at_once: int) -> list[Answer]:
        return drive(llm.llm_engine, jobs, at_once)

    run(WARM_UP, MAX_RUNNING)
    run(WARM_UP[:2], 1)
    title = f"vllm {options.dtype}" + (" eager" if options.eager else "")
    take_turns(title, run, named(options.workload), say)


if __name__ == "__main__":
    main()
