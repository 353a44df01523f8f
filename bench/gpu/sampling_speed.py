"""What drawing the tokens of a step takes: the host's part, and the whole with what it gives
the device. Requests are in their second step and later, as most are: what is made of a prompt
once is made."""

import random
from collections.abc import Iterator
from dataclasses import replace

import torch

from bench.gpu.findings import Findings
from bench.gpu.place import Place
from bench.gpu.timing import device_s, host_s
from models.batch import RequestId, Row, Sampling
from models.device_edits import DeviceEdits
from models.device_sampling import draw

VOCAB = 128_256
BATCHES = (1, 32, 256)
KNOWN = 1024  # tokens of a prompt
ROUNDS = 10
BIASES = 64

WAYS: dict[str, Sampling] = {
    "greedy": Sampling(),
    "temperature": Sampling(temperature=0.8),
    "top-p": Sampling(temperature=1.0, top_p=0.9),
    "top-k": Sampling(temperature=1.0, top_k=50),
    "penalties": Sampling(
        temperature=1.0, repetition_penalty=1.1, frequency_penalty=0.1, presence_penalty=0.1
    ),
    "bias": Sampling(logit_bias=tuple((token, 1.0) for token in range(BIASES))),
    "log-probabilities": Sampling(logprobs=20),
}


def check(place: Place, findings: Findings) -> None:
    for batch in BATCHES:
        logits = torch.randn(
            batch, VOCAB, device=place.device, generator=place.generator(seed=3)
        )
        for name, sampling in WAYS.items():
            if findings.out_of_time(f"{name}, batch {batch}"):
                return
            _measure(place, findings, f"{name}, batch {batch}", logits, sampling)
        del logits
        place.clear()


def _measure(
    place: Place, findings: Findings, title: str, logits: torch.Tensor, sampling: Sampling
) -> None:
    rows, edits = list(_rows(len(logits), sampling)), DeviceEdits()

    def step() -> None:
        for row in rows:
            row.output = [*row.output, len(row.output)]
        draw(logits, rows, edits=edits).fetch()

    step()  # makes what is kept of each request
    findings.figure(f"{title}: host", host_s(place, step, ROUNDS) * 1e3, "ms")
    findings.figure(f"{title}: device", device_s(step, ROUNDS) * 1e3, "ms")


def _rows(count: int, sampling: Sampling) -> Iterator[Row]:
    chance = random.Random(count)
    for id in range(count):
        prompt = [chance.randrange(VOCAB) for _ in range(KNOWN)]
        how = replace(sampling, seed=id)
        yield Row(RequestId(id), [0], KNOWN, [1], True, how, prompt, [0])
