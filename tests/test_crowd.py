"""64 clients on the default model over gRPC, a third of whom leave at random moments."""

import asyncio
from random import Random

from models.batch import Sampling
from models.tokenizer import load_tokenizer
from protos.walkway.v1 import inference_pb2 as pb
from service.build import build
from service.messages import Limits, Submit
from tests.cores import make_core, run
from tests.test_default_model import runner
from tests.wire import Wire, serving

CLIENTS = 64
DICE = Random(5)
LENGTHS = [DICE.choice((1, 2, 6, 12, 20)) for _ in range(CLIENTS)]
PROMPTS = [[DICE.randrange(49152) for _ in range(DICE.randint(1, 60))] for _ in LENGTHS]
LEAVERS = set(DICE.sample(range(CLIENTS), CLIENTS // 3))


async def client(wire: Wire, i: int) -> tuple[list[int], bool]:
    """The tokens that came, and whether the answer is complete."""
    call = wire.stub.GenerateStream(
        pb.GenerateRequest(
            token_ids=pb.TokenIds(ids=PROMPTS[i]),
            sampling=pb.Sampling(temperature=0),
            stopping=pb.Stopping(max_tokens=LENGTHS[i], ignore_eos=True),
            output=pb.Output(text=False, token_ids=True),
        )
    )
    if i in LEAVERS:
        asyncio.get_running_loop().call_later(Random(i).uniform(0, 6), call.cancel)
    tokens: list[int] = []
    try:
        async for message in call:
            tokens += message.token_ids
    except asyncio.CancelledError:
        return tokens, False
    return tokens, True


async def crowd() -> list[tuple[list[int], bool]]:
    groups = {
        "model": {"source": "default", "dtype": "fp32"},
        "memory": {"num_pages": 120},
        "engine": {"isolation": "process", "max_step_tokens": 256},
    }
    async with serving(build, tokenizer=load_tokenizer("default"), **groups) as wire:
        answers = await asyncio.gather(*(client(wire, i) for i in range(CLIENTS)))
        await wire.settled()
        assert (
            wire.gauge("kv_pages", state="free") + wire.gauge("kv_pages", state="cached") == 119
        )
        assert len(wire.service.streams) == 0
        return answers


def alone(i: int) -> list[int]:
    """What the engine says when nobody else is there."""
    core = make_core(pages=200, page_size=16, rows=1, budget=256, audit=None)
    core.submit(Submit(i, PROMPTS[i], Sampling(), Limits(LENGTHS[i]), arrival_s=0.0))
    return run(core, runner().runner).tokens[i]


def test_every_answer_is_the_solo_answer_or_what_there_was_of_it_when_its_client_left() -> None:
    answers = asyncio.run(crowd())
    left = [i for i, (_, complete) in enumerate(answers) if not complete]
    assert set(left) <= LEAVERS
    assert left, "nobody left in time: the crowd is too quick for this test"
    for i, (tokens, complete) in enumerate(answers):
        whole = alone(i)
        assert tokens == (whole if complete else whole[: len(tokens)])
