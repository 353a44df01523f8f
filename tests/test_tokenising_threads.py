"""While a long text is tokenised the event loop goes on: with a real tokenizer, whose library
takes the interpreter's lock or leaves it."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

import pytest
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from models.tokenizer import LONG_TOKENS, ModelTokenizer
from service.tokenising import Tokenising

SPECIAL = "<|im_end|>"
TEMPLATE = "{% for m in messages %}{{ m.content }}" + SPECIAL + "{% endfor %}"
ROUNDS = 4
"""One good one of so many: a busy machine may hold up the loop as well."""


def encoder(vocabulary: int) -> Tokenizer:
    """Bytes, and so many further tokens that no text has."""
    names = sorted(pre_tokenizers.ByteLevel.alphabet())
    names += [f"never {number}" for number in range(vocabulary)]
    made = Tokenizer(BPE({name: id for id, name in enumerate(names)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([SPECIAL])
    return made


def tokenizer(vocabulary: int = 0) -> ModelTokenizer:
    return ModelTokenizer(encoder(vocabulary), TEMPLATE, {}, (), "bytes")


def words(characters: int) -> str:
    """Words that do not come twice: the library remembers those it has seen."""
    return "".join(random.Random(1).choices("abcdefgh  ", k=characters))


async def longest_gap_s(work: Awaitable[object]) -> tuple[float, float]:
    """The longest time that the loop stood still while `work` was done, and how long that
    took."""
    doing = asyncio.ensure_future(work)
    started_s = last_s = time.perf_counter()
    longest_s = 0.0
    while not doing.done():
        await asyncio.sleep(0.0005)
        now_s = time.perf_counter()
        longest_s, last_s = max(longest_s, now_s - last_s), now_s
    await doing
    return longest_s, last_s - started_s


Works = dict[str, Callable[[Tokenising], Awaitable[object]]]
TEXT = words(200_000)
WORKS: Works = {
    "text": lambda to: to.text(TEXT),
    "chat": lambda to: to.chat([{"role": "user", "content": TEXT}]),
    "quoted": lambda to: to.chat([{"role": "u", "content": SPECIAL + TEXT + SPECIAL}]),
    "decode": lambda to: to.decode(list(TEXT.encode()) * 4, True),
}


@pytest.mark.parametrize("kind", WORKS)
async def test_the_loop_goes_on_while_a_long_text_is_worked_on(kind: str) -> None:
    tokenising = Tokenising(tokenizer())
    shares: list[float] = []
    while len(shares) < ROUNDS and min(shares, default=1.0) > 0.5:
        gap_s, took_s = await longest_gap_s(WORKS[kind](tokenising))
        shares.append(gap_s / took_s)
    tokenising.close()
    assert min(shares) < 0.5, f"the loop stood still for these parts of the time: {shares}"


async def test_the_first_message_that_spells_a_special_token_holds_up_nobody() -> None:
    started_s = time.perf_counter()
    big = encoder(50_000)
    Tokenizer.from_str(big.to_str())
    loading_s = time.perf_counter() - started_s
    gaps_s: list[float] = []
    while len(gaps_s) < ROUNDS and min(gaps_s, default=loading_s) >= loading_s / 3:
        tokenising = Tokenising(ModelTokenizer(big, TEMPLATE, {}, (), "bytes"))
        spelled = tokenising.chat([{"role": "user", "content": f"a{SPECIAL}b"}])
        gaps_s.append((await longest_gap_s(spelled))[0])
        tokenising.close()
    assert min(gaps_s) < loading_s / 3


@pytest.mark.parametrize("tokens", [1, LONG_TOKENS - 1, LONG_TOKENS, 3 * LONG_TOKENS])
def test_a_text_of_any_length_is_that_of_its_tokens(tokens: int) -> None:
    ours = tokenizer()
    said = words(tokens - 1) + SPECIAL
    ids = ours.encode(said)
    assert len(ids) == tokens
    assert ours.decode(ids) == said.removesuffix(SPECIAL)
    assert ours.decode(ids, skip_special_tokens=False) == said
