"""Requests through the whole service: its front end here, its engine in a process of its own
that loads random weights and starts as it does for anybody, gRPC in between."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout

import grpc.aio

from bench.gpu.findings import Findings
from bench.gpu.judge import judge
from bench.gpu.logits import rounding
from bench.gpu.made import SEED, made, random_tokens, small_shape
from bench.gpu.place import Place
from bench.gpu.room import Room
from bench.gpu.rows import greedy, lengths
from models.devices import DTYPES
from models.load import Loaded, LoadOptions, bring_up
from models.random_weights import SMOLLM2_135M, RandomWeights
from protos.walkway.v1 import inference_pb2 as pb
from protos.walkway.v1.inference_pb2_grpc import InferenceServiceStub
from service import build as service_build
from service.engine_process import Built
from service.frontend import FrontEnd
from service.settings import Settings

OUTPUT = 24
CALL_S = 60.0


class Numbers:
    """A tokenizer for weights that know no text: a token is its number."""

    vocab_size = SMOLLM2_135M.vocab_size
    eos_ids: tuple[int, ...] = ()
    rule = "numbers"
    has_chat_template = False

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [int(number) for number in text.split()]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return "".join(f"{number} " for number in ids)

    def least_tokens(self, text: str) -> int:
        return 0

    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        add_generation_prompt: bool = True,
        most_tokens: int | None = None,
    ) -> list[int]:
        return [token for message in messages for token in self.encode(message["content"])]


def build(settings: Settings) -> Built:
    """In the engine's process."""
    return service_build.build(settings, random_weights)


def random_weights(options: LoadOptions) -> Loaded:
    """Those of the other parts, in the shape for the device."""
    config = small_shape() if options.device == "cpu" else SMOLLM2_135M
    dtype = DTYPES["bf16"]  # which the values are of, whatever is computed in
    return bring_up(config, RandomWeights(SEED, options.device, dtype), options)


def check(place: Place, findings: Findings) -> None:
    config = SMOLLM2_135M if place.on_gpu else small_shape()
    prompts = [random_tokens(config, 4 + 5 * i, seed=i) for i in range(4)]
    with redirect_stdout(sys.stderr):  # the service's log; the table is to stand alone
        info, answers = asyncio.run(_served(place, prompts))
    findings.note(f"{info.attention}, {info.dtype}")
    on_device = info.attention == "flashinfer"
    findings.expect(on_device == place.on_gpu, f"what serves is {info.attention}")
    exact = made(place, config, "exact", Room(63, 0, 8, 64))
    tie = rounding(place, exact, prompts[-1]).tie
    expected = greedy(exact.runner(place.recorder()), prompts, OUTPUT, exact.num_pages)
    verdict = judge(exact, prompts, expected, dict(enumerate(answers)), tie)
    findings.expect(not verdict.wrong, "; ".join(verdict.wrong[:3]))
    findings.figure("same answers as in float32", verdict.same / len(prompts))


async def _served(
    place: Place, prompts: Sequence[Sequence[int]]
) -> tuple[pb.GetModelInfoResponse, list[list[int]]]:
    """What is served, and the answers to all prompts at once."""
    service = FrontEnd(_settings(place), build, lambda source: Numbers())
    try:
        await service.start()
        running = asyncio.create_task(service.run())
        target = f"127.0.0.1:{service.listeners.port}"
        async with grpc.aio.insecure_channel(target) as channel:
            stub = InferenceServiceStub(channel)  # type: ignore[no-untyped-call]
            info = await stub.GetModelInfo(pb.GetModelInfoRequest(), timeout=CALL_S)
            calls = [
                stub.Generate(_request(prompt, tokens), timeout=CALL_S)
                for prompt, tokens in zip(prompts, lengths(len(prompts), OUTPUT), strict=True)
            ]
            answers = [list((await call).token_ids) for call in calls]
        service.leaving.ask()
        await running
    finally:
        await service.stop()
    return info, answers


def _settings(place: Place) -> Settings:
    return Settings.model_validate(
        {
            "server": {"port": 0},
            "engine": {
                "max_rows": 8,
                "max_step_tokens": 64,
                "threads": 0 if place.on_gpu else 1,
            },
            "model": {"source": "random", "device": place.device},
            "memory": {"num_pages": 64},
            "metrics": {"enabled": False},
            "admin": {"enabled": False},
            "log": {"level": "warning"},
        }
    )


def _request(prompt: Sequence[int], tokens: int) -> pb.GenerateRequest:
    return pb.GenerateRequest(
        token_ids=pb.TokenIds(ids=prompt),
        sampling=pb.Sampling(temperature=0.0),
        stopping=pb.Stopping(max_tokens=tokens, ignore_eos=True),
        output=pb.Output(token_ids=True),
    )
