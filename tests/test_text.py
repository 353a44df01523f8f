"""Streamed text: joined it is the whole text, nothing comes twice, nothing past a stop."""

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from models.batch import TokenLogprob
from models.tokenizer import load_tokenizer
from service.packing import pack, unpack
from service.stops import StopMatcher
from service.text import HELD_TOKENS, Delta, Detokenizer, TextStream

WORDS = "Hello world, 你好 🙂👩‍🚀 naïve — ok.\n  two  spaces "
SPECIAL = "<|end|>"


class Bytes:
    """A byte-level vocabulary: token i is `pieces[i]`, None a special token. Counts the ids
    it decoded."""

    def __init__(self, *pieces: bytes | None) -> None:
        self.pieces = pieces
        self.decoded = 0
        self.longest = 0

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        self.decoded += len(ids)
        self.longest = max(self.longest, len(ids))
        special = b"" if skip_special_tokens else SPECIAL.encode()
        pieces = [self.pieces[i] for i in ids]
        return b"".join(special if p is None else p for p in pieces).decode("utf-8", "replace")


class Encoded:
    """A tokenizer of the `tokenizers` library."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.tokenizer.add_special_tokens([SPECIAL])

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text).ids


def byte_level() -> Encoded:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("l", "l"), ("o", "Ġ"), ("Ġ", "Ġ"), ("ð", "Ł"), ("Ł", "Ļ")]
    pieces = [*alphabet, *("".join(pair) for pair in merges)]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return Encoded(tokenizer)


def sentencepiece(decoder: decoders.Decoder) -> Encoded:
    """Words behind "▁", and bytes for what the vocabulary lacks."""
    pieces = ["<unk>", *(f"<0x{b:02X}>" for b in range(256))]
    pieces += ["▁", *"Helowrd,naviksptc.你", "▁▁"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=[("▁", "▁")], byte_fallback=True, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    tokenizer.decoder = decoder
    return Encoded(tokenizer)


TOKENIZERS = {
    "byte level": byte_level(),
    "metaspace": sentencepiece(
        decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()])
    ),
    "llama": sentencepiece(
        decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
    ),
}


def join(deltas: Sequence[Delta]) -> Delta:
    return Delta(
        "".join(d.text for d in deltas),
        tuple(t for d in deltas for t in d.tokens),
        tuple(p for d in deltas for p in unpack(d.logprobs)),
    )


def stream(decoder, tokens: Sequence[int], stops=(), groups=None, **options):
    """All deltas of a request, `finish` last."""
    text = TextStream(decoder, stops, **options)
    deltas, left = [], list(tokens)
    for size in groups or [1] * len(left):
        part, left = left[:size], left[size:]
        deltas.append(text.feed(part, pack([TokenLogprob(t, -1.0) for t in part])))
    deltas += [text.feed(left, pack([TokenLogprob(t, -1.0) for t in left])), text.finish()]
    return text, deltas


@pytest.mark.parametrize("name", TOKENIZERS)
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_deltas_joined_are_the_whole_text(name, data):
    tokenizer = TOKENIZERS[name]
    parts = data.draw(st.lists(st.sampled_from([*WORDS, "  ", "Hello ", "你好", SPECIAL])))
    skip = data.draw(st.booleans())
    tokens = tokenizer.encode("".join(parts))
    _, deltas = stream(tokenizer, tokens, skip_special_tokens=skip)
    whole = join(deltas)
    assert whole.text == tokenizer.decode(tokens, skip_special_tokens=skip)
    assert whole.tokens == tuple(tokens)
    assert [p.token for p in whole.logprobs] == tokens
    assert all("\ufffd" not in d.text for d in deltas)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 261)), st.booleans())
def test_random_bytes_give_the_whole_text(tokens, skip):
    tokenizer = TOKENIZERS["byte level"]
    _, deltas = stream(tokenizer, tokens, skip_special_tokens=skip)
    assert join(deltas).text == tokenizer.decode(tokens, skip_special_tokens=skip)


PIECES = Bytes(
    b"a", b"b", b"ab", b"ba ", "é".encode(), b"\xe2", b"\x82", b"\xac", b"a\xe2", b"\xacb",
    b"\xf0\x9f", b"\x98\x80", b"\xff", None,
)  # fmt: skip
STREAMS = st.lists(st.integers(0, len(PIECES.pieces) - 1), max_size=60)
STOPS = st.lists(st.text("ab €é😀", min_size=1, max_size=5), max_size=4)


def expected(tokens: Sequence[int], stops: Sequence[str], include: bool, skip: bool):
    """Text, number of ids and stop string, by decoding and searching everything each time."""
    for count in range(len(tokens) + 1):
        text = PIECES.decode(tokens[:count], skip)
        if count < len(tokens):
            text = text.rstrip("\ufffd")
        for end in range(len(text) + 1):
            found = [stop for stop in stops if text[:end].endswith(stop)]
            if found:
                stop = max(found, key=len)
                return text[: end if include else end - len(stop)], count, stop
    return text, len(tokens), None


@settings(max_examples=400, deadline=None)
@given(STREAMS, STOPS, st.booleans(), st.booleans(), st.lists(st.integers(0, 9), max_size=9))
def test_any_grouping_gives_what_searching_the_whole_text_gives(
    tokens, stops, include, skip, groups
):
    text, deltas = stream(
        PIECES, tokens, stops, groups, include_stop=include, skip_special_tokens=skip
    )
    whole = join(deltas)
    visible, count, stop = expected(tokens, stops, include, skip)
    assert (whole.text, whole.tokens, text.matched) == (visible, tuple(tokens[:count]), stop)
    assert [p.token for p in whole.logprobs] == list(whole.tokens)
    assert text.dropped == len(tokens) - count


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text("abc", max_size=4), max_size=12), STOPS)
def test_exactly_what_may_become_a_stop_is_held_back(parts, stops):
    matcher, seen, passed = StopMatcher(stops), "", ""
    for part in parts:
        seen += part
        passed += matcher.feed(part)
        if matcher.matched is not None:
            assert passed + matcher.matched == seen[: len(passed + matcher.matched)]
            return
        ends = [seen[len(seen) - n :] for n in range(len(seen) + 1)]
        held = max(
            (e for e in ends if any(s.startswith(e) for s in stops)), key=len, default=""
        )
        assert passed + held == seen
    assert passed + matcher.flush() == seen


def test_a_stop_string_that_comes_a_character_a_token_is_never_shown():
    letters = Bytes(*(bytes([c]) for c in b"###STOP!x"))
    text, deltas = stream(letters, [8, *range(7), 8, 8], ["###STOP"])
    assert [d.text for d in deltas[:8]] == ["x"] + [""] * 7
    assert [d.tokens for d in deltas] == [(8,)] + [()] * 6 + [tuple(range(7))] + [()] * 4
    assert (text.matched, text.dropped) == ("###STOP", 2)


def test_text_that_only_begins_like_a_stop_comes_as_soon_as_that_is_clear():
    letters = Bytes(*(bytes([c]) for c in b"abac"))
    _, deltas = stream(letters, [0, 1, 2, 1, 2, 3], ["abac!"])
    assert [d.text for d in deltas] == ["", "", "", "ab", "", "", "", "abac"]
    assert [d.tokens for d in deltas][3:5] == [(0, 1), ()]


def test_of_stops_complete_at_once_the_longest_wins_and_else_the_first_complete():
    for stops in (["bc", "abc"], ["abc", "bc"]):
        matcher = StopMatcher(stops)
        assert (matcher.feed("xabc"), matcher.matched) == ("x", "abc")
    matcher = StopMatcher(["abcd", "bc"], include=True)
    assert (matcher.feed("xabcd"), matcher.matched) == ("xabc", "bc")
    assert matcher.feed("bc") == matcher.flush() == ""


def test_an_empty_stop_string_is_an_error():
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""])


STOP_BYTES, STOP_COUNT = 1024, 16  # as many and as long as a request may have


def test_stops_that_almost_match_all_the_time_hold_back_what_they_must():
    stops = ["a" * (STOP_BYTES - n) + "b" for n in range(1, STOP_COUNT + 1)]
    matcher = StopMatcher(stops)
    assert sum(len(matcher.feed("a")) for _ in range(5000)) == 5000 - (STOP_BYTES - 1)
    assert (matcher.feed("ab"), matcher.matched) == ("a", stops[0])


def test_a_place_that_failed_is_not_tried_again():
    """So the work is bounded by the text, however much of it is held back."""
    matcher = StopMatcher(["a" * 900 + "b", "aac"])
    tried = 0

    class Counted(str):
        def find(self, *args):
            nonlocal tried
            tried += 1
            return super().find(*args)

        def __add__(self, text):
            return Counted(str(self) + text)

    for _ in range(2000):
        matcher._held = Counted(matcher._held)
        matcher.feed("a")
    assert tried <= 2 * 2 * 2000


def test_stop_strings_that_wait_take_the_memory_of_their_text():
    stops = [chr(65 + n) * (STOP_BYTES - 1) + "é" for n in range(STOP_COUNT)]
    tracemalloc.start()
    try:
        waiting = [StopMatcher(stops) for _ in range(400)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert waiting
    assert taken < 400 * STOP_COUNT * 150  # it was 4.4 MB each


def test_an_emoji_over_four_tokens_comes_once_and_with_its_ids():
    emoji = Bytes(b"\xf0", b"\x9f", b"\x98", b"\x80")
    _, deltas = stream(emoji, [0, 1, 2, 3, 0, 1])
    assert [d.text for d in deltas] == ["", "", "", "😀", "", "", "", "\ufffd"]
    assert [d.tokens for d in deltas] == [(), (), (), (0, 1, 2, 3), (), (), (), (0, 1)]


def test_a_space_behind_skipped_special_tokens_is_kept():
    tokenizer = TOKENIZERS["llama"]
    space, special = tokenizer.encode("o o"), tokenizer.tokenizer.token_to_id(SPECIAL)
    tokens = [special, *space, *[special] * 40, *space[:1], special, *space]
    _, deltas = stream(tokenizer, tokens)
    assert join(deltas).text == tokenizer.decode(tokens, skip_special_tokens=True) == "o o  o o"


@pytest.mark.parametrize(
    "cycle", [[0], [12], [5], [5, 13], [13], [6], [10, 13, 13], [5, 12], [0, 5, 6, 7], [8]]
)
def test_a_token_costs_the_same_however_long_the_text_is(cycle):
    """Runs that complete no character, and special tokens within one, included."""
    decoder = Bytes(*PIECES.pieces)
    detokenizer, tokens = Detokenizer(decoder, True), (cycle * 2000)[:2000]
    given = waited = 0
    for count, token in enumerate(tokens, 1):
        given += len(detokenizer.push(token))
        waited = max(waited, detokenizer.unfinished)
        if count % 100 == 0:
            assert len(PIECES.decode(tokens[:count], True)) - given <= HELD_TOKENS
    assert waited <= HELD_TOKENS
    assert decoder.longest <= 2 * HELD_TOKENS + 2
    assert decoder.decoded <= 3 * HELD_TOKENS * len(tokens)
    given += len(detokenizer.flush())
    assert given == len(PIECES.decode(tokens, True))


def test_bytes_that_spoil_their_run_do_not_take_back_what_was_sent():
    """The whole run is U+FFFD to the decoder; the euro sign was out by then."""
    tokenizer = TOKENIZERS["llama"]
    tokens = [tokenizer.tokenizer.token_to_id(f"<0x{b:02X}>") for b in b"\xe2\x82\xac\xff"]
    tokens += tokenizer.encode("o")
    _, deltas = stream(tokenizer, tokens)
    assert tokenizer.decode(tokens, skip_special_tokens=True) == "\ufffd" * 4 + " o"
    assert join(deltas).text == "€\ufffd o"


def test_the_stop_token_is_an_id_without_text():
    letters = Bytes(b"a", b"END", None)
    for include, shown in ((False, "a"), (True, "aEND")):
        text = TextStream(letters, ["zz"], include_stop=include)
        assert join([text.feed([0, 1], stopped=True), text.finish()]) == Delta(
            shown, (0, 1), ()
        )
    text = TextStream(letters, skip_special_tokens=False)
    assert join([text.feed([0, 2], stopped=True), text.finish()]) == Delta("a", (0, 2), ())


def test_stop_strings_work_when_only_ids_are_wanted():
    letters = Bytes(b"a", b"b", b"c")
    text, deltas = stream(letters, [0, 1, 2, 0], ["bc"], wants_text=False)
    assert (text.matched, join(deltas).tokens) == ("bc", (0, 1, 2))


def test_ids_alone_cost_no_decoding():
    letters = Bytes(b"\xe2")
    _, deltas = stream(letters, [0, 0, 0], wants_text=False)
    assert [d.tokens for d in deltas] == [(0,), (0,), (0,), (), ()]
    assert letters.decoded == 0


def test_a_stop_that_only_the_last_held_text_completes_is_found():
    text, deltas = stream(Bytes(b"a", b"\xe2"), [0, 1], ["a\ufffd"])
    assert (text.matched, join(deltas).text, join(deltas).tokens) == ("a\ufffd", "", (0, 1))


def test_log_probabilities_that_do_not_fit_the_tokens_are_an_error():
    with pytest.raises(ValueError, match="1 log-probabilities for 2 tokens"):
        TextStream(Bytes(b"a")).feed([0, 0], pack([TokenLogprob(0, -1.0)]))


@pytest.mark.parametrize("bad", range(2 * HELD_TOKENS))
def test_a_character_behind_bad_bytes_is_not_cut(bad):
    decoder = Bytes(b"\xff", b"\xf0", b"\x9f", b"\x98", b"\x80")
    _, deltas = stream(decoder, [0] * bad + [1, 2, 3, 4])
    assert join(deltas).text == "\ufffd" * bad + "😀"


def test_the_default_model_streams_what_its_tokenizer_decodes():
    tokenizer = load_tokenizer("default")
    tokens = tokenizer.encode(WORDS) + list(tokenizer.eos_ids) + tokenizer.encode(WORDS)
    for skip in (True, False):
        _, deltas = stream(tokenizer, tokens, skip_special_tokens=skip)
        assert join(deltas).text == tokenizer.decode(tokens, skip_special_tokens=skip)
        assert all("\ufffd" not in d.text for d in deltas)
