"""Keeps what a message says from being taken for the control tokens that it spells.

A chat template turns messages into one text, in which a control token cannot be told from
text that spells it. So each control token that the *template* writes is replaced by a mark,
one private character for each token, and the rendered text is encoded by a tokenizer that
knows the marks and not the spellings. Messages are rendered as they are: the template sees
what the caller sent, and what they spell is text. A mark is a single character, and no message
has it when it is rendered, so no part of a message becomes a control token, alone or joined
with other text.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Encoder

from models.errors import ModelError

_LAST_MARK = 0x10FFFD  # downwards: the end of the private characters, which no font uses
_FIRST_MARK = 0x100000
_STAND_INS = range(0xF0000, 0xFFFFE)


class Marks:
    """One private character for each of a model's control tokens."""

    def __init__(self, tokens: Iterable[str]) -> None:
        longest_first = sorted({*tokens} - {""}, key=lambda token: (-len(token), token))
        if len(longest_first) > _LAST_MARK - _FIRST_MARK:
            raise ModelError(f"{len(longest_first)} control tokens are more than can be marked")
        self._of = {token: chr(_LAST_MARK - i) for i, token in enumerate(longest_first)}
        self._spelling = {ord(mark): token for token, mark in self._of.items()}
        self._any = re.compile(f"[{chr(_LAST_MARK - len(self._of))}-{chr(_LAST_MARK)}]")
        self._tokens = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def __getitem__(self, token: str) -> str:
        return self._of[token]

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __contains__(self, token: str) -> bool:
        return token in self._of

    def mark(self, text: str) -> str:
        """The text with a mark for each control token that it spells."""
        return self._tokens.sub(lambda found: self._of[found[0]], text)

    def spell(self, text: str) -> str:
        """The text as it reads without marks."""
        return text.translate(self._spelling) if self._has_any(text) else text

    def stand_ins(self, texts: Sequence[str]) -> dict[int, str]:
        """For each mark that a caller's text has as a character, another character that no
        text has. Usually there is none."""
        if not any(map(self._has_any, texts)):
            return {}
        used = set().union(*texts)
        free = (chr(code) for code in _STAND_INS if chr(code) not in used)
        return dict(zip(sorted(map(ord, used) & self._spelling.keys()), free, strict=False))

    def _has_any(self, text: str) -> bool:
        # No other thread runs meanwhile, and a text may have millions of characters.
        return not text.isascii() and self._any.search(text) is not None


def marked_encoder(encoder: Encoder, marks: Marks, ids: Mapping[str, int]) -> Encoder:
    """The same tokenizer, except that a control token is spelled by its mark alone. `ids` are
    those of the tokens that have marks. ModelError if the library gives a mark another id."""
    for make in (_sharing, _rebuilt):
        marked = make(encoder, marks, ids)
        if all(marked.token_to_id(marks[token]) == id for token, id in ids.items()):
            return marked
    raise ModelError("the tokenizer's control tokens have no ids of their own")


def _sharing(encoder: Encoder, marks: Marks, ids: Mapping[str, int]) -> Encoder:
    """With the vocabulary of `encoder`, which may take a hundred megabytes, and seconds to
    make. Ids are right if it has none of the control tokens."""
    marked = Encoder(encoder.model)
    if encoder.normalizer is not None:
        marked.normalizer = encoder.normalizer
    if encoder.pre_tokenizer is not None:
        marked.pre_tokenizer = encoder.pre_tokenizer
    added = [token for _, token in sorted(encoder.get_added_tokens_decoder().items())]
    for special, group in groupby(added, key=lambda token: token.special):
        tokens = [
            _marked_token(token, marks) if token.content in ids else token for token in group
        ]
        (marked.add_special_tokens if special else marked.add_tokens)(tokens)
    return marked


def _marked_token(token: AddedToken, marks: Marks) -> AddedToken:
    return AddedToken(
        marks[token.content],
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=False,
        special=token.special,
    )


def _rebuilt(encoder: Encoder, marks: Marks, ids: Mapping[str, int]) -> Encoder:
    """With a vocabulary in which marks stand for the control tokens."""
    raw = json.loads(encoder.to_str())
    raw["post_processor"] = None
    for token in raw["added_tokens"]:
        if token["content"] in ids:
            token |= {"content": marks[token["content"]], "normalized": False}
            token["single_word"] = False
    _rename(raw["model"], marks, ids)
    marked: Encoder = Encoder.from_str(json.dumps(raw))
    return marked


def _rename(model: dict[str, Any], marks: Marks, ids: Mapping[str, int]) -> None:
    # A vocabulary that has a control token as a word could still make it from plain text.
    def name(piece: str) -> str:
        return marks[piece] if piece in ids else piece

    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {name(piece): id for piece, id in vocabulary.items()}
    else:
        model["vocab"] = [[name(piece), *rest] for piece, *rest in vocabulary]
    if "merges" in model:
        inside = model.get("continuing_subword_prefix") or ""
        model["merges"] = [p for p in model["merges"] if not _makes(p, inside, ids)]
    if model.get("unk_token") is not None:
        model["unk_token"] = name(model["unk_token"])


def _makes(pair: Sequence[str] | str, inside: str, ids: Mapping[str, int]) -> bool:
    """Whether a merge makes a control token, or goes on from one."""
    left, right = pair.split(" ", 1) if isinstance(pair, str) else pair
    return left in ids or right in ids or left + right.removeprefix(inside) in ids
