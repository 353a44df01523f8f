"""The default model's greedy answers and logits against float32, where its file is: nothing is
fetched."""

from pathlib import Path

import torch

from bench.gpu.findings import Findings, Skipped
from bench.gpu.judge import judge
from bench.gpu.logits import CHUNK, apart, compare, rounding
from bench.gpu.made import made
from bench.gpu.place import Place
from bench.gpu.room import Room
from bench.gpu.rows import greedy
from bench.workload import load_workload
from models.device_weights import OnDevice
from models.fetch import NAME, cache_folder
from models.gguf_config import from_gguf
from models.gguf_file import read_gguf
from models.gguf_weights import GgufWeights

PROMPT = 48
ROOM = Room(pages=127, host_pages=0, rows=8, step_tokens=512)


def check(place: Place, findings: Findings) -> None:
    path = place.model or cache_folder() / NAME
    if not path.exists():
        raise Skipped(f"there is no {path}")
    if place.quick:
        raise Skipped("not quick")
    _check(place, findings, path)


@torch.inference_mode()
def _check(place: Place, findings: Findings, path: Path) -> None:
    file = read_gguf(path)
    config = from_gguf(file)
    source = OnDevice(GgufWeights(file, config), place.device)
    exact, tested = (made(place, config, kind, ROOM, source) for kind in ("exact", "tested"))
    count, tokens = (8, 64) if place.on_gpu else (2, 12)
    jobs = load_workload("mixed")[:count]
    prompts = [list(job.prompt[: PROMPT + i]) for i, job in enumerate(jobs)]
    text = list(jobs[0].prompt)
    rounded = rounding(place, exact, text, source)
    compare(
        findings,
        "logits",
        apart(tested.logits(text, CHUNK), exact.logits(text, CHUNK)),
        rounded,
    )
    wanted, found = (
        greedy(model.runner(place.recorder(), rows), prompts, tokens, model.num_pages)
        for model, rows in ((exact, 0), (tested, 8))
    )
    verdict = judge(exact, prompts, wanted, found, rounded.tie)
    findings.expect(not verdict.wrong, "; ".join(verdict.wrong[:3]))
    findings.figure("same answers as in float32", verdict.same / count)
    findings.figure("answers that part at a tie", verdict.ties)
