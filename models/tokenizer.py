"""Text to token ids and back, and chat messages to a prompt by the model's own template.

For the front end: torch and transformers, which take seconds to import, stay out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer as Encoder

from models.chat_template import ChatTemplate, ChatTemplateError
from models.config import eos_ids, read_json
from models.coverage import coverage
from models.errors import ModelError, PromptTooLong
from models.gguf_file import read_gguf
from models.gguf_tokenizer import (
    encoder_from_gguf,
    end_ids,
    names_rule,
    special_tokens,
    word_rule,
)
from models.quoting import Marks, marked_encoder
from models.source import model_path
from models.tokenizer_files import TokenizerFiles, read_tokenizer_files

LONG_TOKENS = 256
"""From so many tokens on it is worth a little more time that other threads run while their
text is made; a stream asks for a few at a time."""

_PROBE = [{"role": role, "content": "x"} for role in ("system", "user", "assistant", "user")]
_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")
"""What some vocabularies make of a character that they lack, a byte a token: no control."""
_CONTROL = re.compile(r"<\|.*\|>|<｜.*｜>", re.DOTALL)
"""What a control token looks like. Files of good name say of theirs that they are not special:
DeepSeek's distilled models of `<｜User｜>`, ChatML models of `<|im_start|>`."""


class Tokenizer(Protocol):
    """What the front end asks of a tokenizer."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_ids(self) -> tuple[int, ...]: ...

    @property
    def rule(self) -> str: ...

    @property
    def has_chat_template(self) -> bool: ...

    def least_tokens(self, text: str) -> int: ...

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]: ...

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str: ...

    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        add_generation_prompt: bool = True,
        most_tokens: int | None = None,
    ) -> list[int]: ...


class ModelTokenizer:
    """A model's tokenizer. Safe to use from several threads.

    A control token that is spelled out in a text is that token: who sends a whole prompt may
    write all of the model's language. In chat messages it is plain text: only the template
    ends a turn or begins another, whatever a message says.
    """

    def __init__(
        self,
        encoder: Encoder,
        template: str | None,
        special: Mapping[str, str],
        eos_ids: Sequence[int],
        rule: str,
        assumes_rule: bool = False,
    ) -> None:
        """`special` are tokens by the names that templates know; `rule` names how text is cut,
        which may be assumed."""
        self.assumes_rule = assumes_rule
        self._encoder = encoder
        self.rule = rule
        self.eos_ids = tuple(dict.fromkeys(eos_ids))
        bos = special.get("bos_token")
        self.bos_id = None if bos is None else encoder.token_to_id(bos)
        added = encoder.get_added_tokens_decoder().items()
        words: int = encoder.get_vocab_size(with_added_tokens=True)
        self.vocab_size = max([words, *(i + 1 for i, _ in added)])  # there may be gaps
        control = {
            token.content: i
            for i, token in added
            if token.special or i in self.eos_ids or _CONTROL.fullmatch(token.content)
            if not _BYTE.fullmatch(token.content)
        }
        self._coverage = coverage(encoder)
        self.special_ids = frozenset(i for i, token in added if token.special)
        self._marks = Marks(control)
        self._template = ChatTemplate(template, special, self._marks)
        self._unmarked_template = ChatTemplate(template, special, Marks(()))
        # Made here, not when the first chat comes: no other thread runs meanwhile, for as
        # long as loading takes.
        self._marked_encoder = (
            marked_encoder(encoder, self._marks, control) if self.has_chat_template else encoder
        )

    @property
    def has_chat_template(self) -> bool:
        """Whether `chat` works; it raises NoChatTemplate with the reason otherwise."""
        return self._template.fault is None

    def least_tokens(self, text: str) -> int:
        """A lower bound of the number of tokens, which costs no tokenising; 0 where this
        tokenizer leaves nothing to say."""
        return self._coverage.least_tokens(text) if self._coverage else 0

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids, special ones where the text spells them; with the beginning-of-sequence
        token where the model's tokenizer adds one."""
        return _ids(self._encoder, text, add_special_tokens)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text; bytes that make no character become U+FFFD."""
        if len(ids) < LONG_TOKENS:
            text: str = self._encoder.decode(list(ids), skip_special_tokens)
        else:
            (text,) = self._encoder.decode_batch([list(ids)], skip_special_tokens)
        return text

    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        add_generation_prompt: bool = True,
        most_tokens: int | None = None,
    ) -> list[int]:
        """Prompt ids of a conversation. The template alone decides on the beginning of
        sequence; one that writes it twice is corrected. Raises ChatTemplateError, and
        PromptTooLong for what surely has more than `most_tokens`."""
        texts = [text for message in messages for text in message.values()]
        stand_ins = self._marks.stand_ins(texts)
        if stand_ins:
            messages = [
                {k: text.translate(stand_ins) for k, text in m.items()} for m in messages
            ]
        ids: list[int] = []
        least = 0
        for text, stands_in in _cut(
            self._template.render(messages, add_generation_prompt), stand_ins
        ):
            least += self.least_tokens(text)
            # One that begins the sequence twice may still go.
            if most_tokens is not None and least - 1 > most_tokens:
                raise PromptTooLong(least)
            encoder = self._encoder if stands_in else self._marked_encoder
            ids += _ids(encoder, text, add_special_tokens=False)
        while self._begins_twice(ids):
            del ids[0]
        return ids

    @cached_property
    def corrects_template(self) -> bool:
        """The chat template writes the beginning of sequence twice, which `chat` mends: to be
        said at start, since the model's other users may not mend it."""
        if not self.has_chat_template:
            return False
        try:
            text = self._template.render([{"role": "user", "content": "x"}])
        except ChatTemplateError:
            return False  # it wants other turns than this
        return self._begins_twice(_ids(self._marked_encoder, text, add_special_tokens=False))

    @cached_property
    def misreads_template(self) -> bool:
        """The template makes control tokens in a way that is not recognised here, so that a
        plain conversation gives other tokens than its text has: to be said at start."""
        return any(not self._follows(_PROBE[start:end]) for start, end in ((0, 2), (1, 4)))

    def _follows(self, messages: Sequence[Mapping[str, str]]) -> bool:
        if not self.has_chat_template:
            return True
        try:
            marked = self._template.render(messages)
            text = self._unmarked_template.render(messages)
        except ChatTemplateError:
            return True  # it wants other turns than these
        ids = _ids(self._marked_encoder, marked, add_special_tokens=False)
        return ids == _ids(self._encoder, text, add_special_tokens=False)

    def _begins_twice(self, ids: list[int]) -> bool:
        return self.bos_id is not None and ids[:2] == [self.bos_id, self.bos_id]


def _ids(encoder: Encoder, text: str, add_special_tokens: bool) -> list[int]:
    # Only the library's calls for batches let other threads run meanwhile.
    (encoding,) = encoder.encode_batch_fast([text], add_special_tokens=add_special_tokens)
    ids: list[int] = encoding.ids
    return ids


def _cut(rendered: str, stand_ins: Mapping[int, str]) -> Iterator[tuple[str, bool]]:
    """The text in pieces, and whether each is a character that another stood in for."""
    if not stand_ins:
        yield rendered, False
        return
    stood_for = {stand_in: chr(code) for code, stand_in in stand_ins.items()}
    for place, piece in enumerate(re.split(f"([{''.join(stood_for)}])", rendered)):
        if piece:
            yield stood_for.get(piece, piece), place % 2 == 1


def load_tokenizer(source: str) -> ModelTokenizer:
    """The tokenizer of `default`, a folder, a .gguf file or a hub id. ModelError where there
    is none that can be read."""
    path = model_path(source)
    return _of_gguf(path) if path.is_file() else of_folder(path, read_tokenizer_files(path))


def of_folder(folder: Path, files: TokenizerFiles) -> ModelTokenizer:
    """The tokenizer of a folder whose tokenizer's files were read."""
    ends = [] if files.eos_id is None else [files.eos_id]
    return ModelTokenizer(
        _whole(Encoder.from_str(files.encoder)),
        files.template,
        files.special,
        [*eos_ids(read_json(folder / "config.json"), folder), *ends],
        files.kind,
    )


def _whole(encoder: Encoder) -> Encoder:
    # Left in some files from training: prompts would be cut or filled up in silence.
    encoder.no_truncation()
    encoder.no_padding()
    return encoder


def _of_gguf(path: Path) -> ModelTokenizer:
    file = read_gguf(path)
    template = file.metadata.get("tokenizer.chat_template")
    beside = path.with_name("tokenizer.json")
    return ModelTokenizer(
        _read_encoder(beside) if beside.exists() else encoder_from_gguf(file),
        template if isinstance(template, str) else None,
        special_tokens(file),
        end_ids(file),
        "tokenizer.json" if beside.exists() else word_rule(file),
        assumes_rule=not beside.exists() and not names_rule(file),
    )


def _read_encoder(path: Path) -> Encoder:
    try:
        return _whole(Encoder.from_file(str(path)))
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(f"cannot read {path}: {error}") from error
