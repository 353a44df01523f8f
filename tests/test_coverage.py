"""What is said of a text's tokens without tokenising it never exceeds what they are."""

import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordLevel

from models.coverage import COMPOSING, coverage

SYMBOLS = sorted(pre_tokenizers.ByteLevel.alphabet())
WORDS = ["th", "the", "Ġthe", "ĠĠ", "ĠĠĠĠ"]
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("Ġ", "Ġ"), ("ĠĠ", "ĠĠ")]


def byte_level(lacks: str = "", composes: bool = False) -> Tokenizer:
    tokens = [symbol for symbol in SYMBOLS if symbol not in lacks] + WORDS
    made = Tokenizer(BPE({token: id for id, token in enumerate(tokens)}, MERGES))
    digits = pre_tokenizers.Digits(individual_digits=True)
    cuts = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, cuts])
    if composes:
        made.normalizer = normalizers.NFC()
    made.add_special_tokens(["<|a long special token|>"])
    return made


def falling_back() -> Tokenizer:
    tokens = [f"<0x{byte:02X}>" for byte in range(256)] + ["<unk>", *"▁the", "th", "the"]
    made = Tokenizer(
        BPE(
            {token: id for id, token in enumerate(tokens)},
            [("t", "h"), ("th", "e")],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    made.normalizer = normalizers.Sequence(steps)
    return made


MADE = {
    "byte level": byte_level(),
    "bytes that it lacks": byte_level(lacks="ĆĦÃ"),
    "composing": byte_level(composes=True),
    "falling back": falling_back(),
}


@pytest.mark.parametrize("kind", MADE)
@given(text=st.text() | st.lists(st.sampled_from(["the", " ", "é", "\x06", "é"])).map("".join))
def test_a_text_has_as_many_tokens_as_said_or_more(kind: str, text: str) -> None:
    found = coverage(MADE[kind])
    assert found
    ids = MADE[kind].encode(text, add_special_tokens=False).ids
    assert found.least_tokens(text) <= len(ids)


def test_a_text_far_above_a_limit_is_known_to_be() -> None:
    found = coverage(MADE["byte level"])
    assert found
    assert found.least_tokens("x" * 1_000_000) > 40_000


def test_composing_makes_a_ninth_of_a_text_at_most() -> None:
    rng = random.Random(1)
    marks = [chr(c) for c in range(0x300, 0x370)]
    singles = ["\u212a", "\u1fef", "\u2126", "\u1100\u1161\u11a8"]
    for _ in range(20_000):
        text = rng.choice(singles) + "".join(rng.choices(marks, k=rng.randrange(4)))
        composed = unicodedata.normalize("NFC", text)
        assert len(text.encode()) <= COMPOSING * len(composed.encode())


def dropping_spaces() -> Tokenizer:
    made = byte_level()
    cuts = [pre_tokenizers.Split(Regex(r"\s+"), "removed"), made.pre_tokenizer]
    made.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    return made


def taking_spaces_along() -> Tokenizer:
    made = byte_level()
    made.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return made


def stripping() -> Tokenizer:
    made = byte_level()
    made.normalizer = normalizers.Strip()
    return made


def whole_words() -> Tokenizer:
    return Tokenizer(WordLevel({"<unk>": 0}, unk_token="<unk>"))


def unknown_characters() -> Tokenizer:
    made = byte_level()
    made.pre_tokenizer = pre_tokenizers.Digits()
    return made


@pytest.mark.parametrize(
    "make",
    [dropping_spaces, taking_spaces_along, stripping, whole_words, unknown_characters],
)
def test_nothing_is_said_where_a_token_may_be_of_any_length(make: object) -> None:
    assert callable(make)
    assert coverage(make()) is None
