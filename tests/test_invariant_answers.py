"""The default model over gRPC, in every dtype: an answer, to the bit of its
log-probabilities, is the same alone, in company and when its pages are taken."""

import asyncio
from random import Random

import pytest

from models.linear import fastest_dtype
from models.tokenizer import load_tokenizer
from protos.walkway.v1 import inference_pb2 as pb
from service.build import build
from tests.wire import Wire, collect, serving

pytestmark = pytest.mark.alone

TOKENS = 24
PAGES = 48
DICE = Random(9)
OTHERS = [
    ([DICE.randrange(49152) for _ in range(DICE.randint(1, 60))], DICE.randint(4, 40))
    for _ in range(31)
]
SCORED = pb.Output(text=False, token_ids=True, logprobs=3)
ASKED = [
    pb.GenerateRequest(
        text="Photosynthesis is the process by which",
        sampling=pb.Sampling(temperature=0),
        stopping=pb.Stopping(max_tokens=TOKENS, ignore_eos=True),
        output=SCORED,
    ),
    pb.GenerateRequest(
        text="Once upon a time there was a",
        sampling=pb.Sampling(temperature=1, top_p=0.95, seed=7),
        stopping=pb.Stopping(max_tokens=TOKENS, ignore_eos=True),
        output=SCORED,
    ),
]
DTYPES = {
    "fp32": "fp32",
    "bf16": "bf16" if fastest_dtype() == "bf16" else "bf16 without its instructions",
}


def bits(answer: pb.GenerateResponse) -> tuple[list[int], list[pb.TokenLogprob]]:
    """Equal only when the logits behind the tokens are equal to the bit."""
    return list(answer.token_ids), list(answer.logprobs)


async def beside(wire: Wire, count: int, priority: int) -> list[pb.GenerateResponse]:
    """The answers of `ASKED` in the company of `count` others, who come after the two but
    are more urgent or less."""
    asked = [asyncio.ensure_future(wire.stub.Generate(request)) for request in ASKED]
    await wire.until(lambda: wire.gauge("requests", state="running") == len(ASKED))
    calls = [
        wire.stub.GenerateStream(
            pb.GenerateRequest(
                token_ids=pb.TokenIds(ids=prompt),
                stopping=pb.Stopping(max_tokens=tokens, ignore_eos=True),
                priority=priority,
            )
        )
        for prompt, tokens in OTHERS[:count]
    ]
    await asyncio.gather(*(collect(call) for call in calls))
    return await asyncio.gather(*asked)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPES.values())
async def test_greedy_and_seeded_answers_are_the_same_bits_alone_and_in_company(
    dtype: str,
) -> None:
    groups = {
        "model": {"source": "default", "dtype": dtype},
        "memory": {"num_pages": PAGES, "host_bytes": 2**24},
        "scheduler": {"name": "priority", "options": {"eviction": "auto", "aged_share": 0.0}},
    }
    async with serving(build, tokenizer=load_tokenizer("default"), **groups) as wire:
        info = await wire.stub.GetModelInfo(pb.GetModelInfoRequest())
        assert info.batch_invariant, "the service must say what holds; here it has to"
        alone = [bits(await wire.stub.Generate(request)) for request in ASKED]
        assert [len(scored) for _, scored in alone] == [TOKENS] * len(ASKED)
        for count in (1, 4, 31):
            answers = await beside(wire, count, priority=0)
            assert [bits(found) for found in answers] == alone, f"beside {count} others"
        answers = await beside(wire, len(OTHERS), priority=15)
        assert [bits(found) for found in answers] == alone, "after a preemption"
        assert all(found.summary.usage.preemptions for found in answers)
