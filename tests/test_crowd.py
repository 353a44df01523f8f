"""64 clients on the default model over gRPC, a third of whom leave at random moments."""

import asyncio
from random import Random

from models.batch import Sampling
from models.tokenizer import load_tokenizer
from protos.walkway.v1 import inference_pb2 as pb
from service.build import build
from service.messages import Limits, Submit
from service.packing import unpack
from tests.cores import make_core, step_once
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


def first_choices(prompt: list[int], answer: list[int]) -> list[int]:
    """What the engine says after the prompt and after each token of the answer but the last
    when nobody else is there: of all of them in one step, as if they were a prompt."""
    loaded = runner()
    core = make_core(loaded.num_pages - 1, rows=1, page_size=16, budget=256, audit=None)
    sampling = Sampling(prompt_logprobs=1)
    core.submit(Submit(0, prompt + answer[:-1], sampling, Limits(1), arrival_s=0.0))
    step_once(core, loaded.runner)
    [event], _ = core.take_events()
    after_prompt = list(unpack(event.prompt_logprobs))[len(prompt) - 1 :]
    return [scored.top[0][0] for scored in after_prompt] + event.tokens


def test_every_answer_is_the_solo_answer_or_what_there_was_of_it_when_its_client_left() -> None:
    answers = asyncio.run(crowd())
    left = [i for i, (_, complete) in enumerate(answers) if not complete]
    assert set(left) <= LEAVERS
    assert left, "nobody left in time: the crowd is too quick for this test"
    for i, (tokens, complete) in enumerate(answers):
        assert len(tokens) == LENGTHS[i] if complete else len(tokens) <= LENGTHS[i]
        assert not tokens or tokens == first_choices(PROMPTS[i], tokens), f"client {i}"
