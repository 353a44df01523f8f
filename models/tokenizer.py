"""Text to token ids and back, and chat messages to a prompt by the model's own template.

For the front end: torch and transformers, which take seconds to import, stay out.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer as Encoder

from models.chat_template import ChatTemplate, ChatTemplateError
from models.config import eos_ids, read_json
from models.errors import ModelError
from models.gguf_config import gguf_eos_ids
from models.gguf_file import GgufFile, read_gguf
from models.gguf_tokenizer import encoder_from_gguf
from models.quoting import Quoting
from models.source import model_path

LONG_TOKENS = 256
"""From so many tokens on it is worth a little more time that other threads run while their
text is made; a stream asks for a few at a time."""
_SPECIAL = ("bos", "eos", "unk", "pad", "sep", "cls", "mask")


class Tokenizer(Protocol):
    """What the front end asks of a tokenizer."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_ids(self) -> tuple[int, ...]: ...

    @property
    def has_chat_template(self) -> bool: ...

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]: ...

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str: ...

    def chat(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> list[int]: ...


class ModelTokenizer:
    """A model's tokenizer. Safe to use from several threads.

    A special token that is spelled out in a text is that token: who sends a whole prompt may
    write all of the model's language. In chat messages it is plain text: only the template
    ends a turn or begins another, whatever a message says.
    """

    def __init__(
        self, encoder: Encoder, template: ChatTemplate, eos: tuple[int, ...], bos: int | None
    ) -> None:
        self._encoder = encoder
        self._template = template
        # Made here, not when the first message spells such a token: no other thread runs
        # meanwhile, for as long as loading takes.
        self._plain_encoder = _plain(encoder) if template.fault is None else encoder
        self.vocab_size: int = encoder.get_vocab_size(with_added_tokens=True)
        self.eos_ids = eos
        self.bos_id = bos
        added = encoder.get_added_tokens_decoder().items()
        special = {i: token.content for i, token in added if token.special}
        self.special_ids = frozenset(special)
        self._special_tokens = frozenset(special.values())

    @property
    def has_chat_template(self) -> bool:
        """Whether `chat` works; it raises NoChatTemplate with the reason otherwise."""
        return self._template.fault is None

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
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> list[int]:
        """Prompt ids of a conversation. The template alone decides on the beginning of
        sequence; one that writes it twice is corrected. Raises ChatTemplateError."""
        quoting = Quoting(self._special_tokens)
        said = [{k: quoting.hide(text) for k, text in m.items()} for m in messages]
        ids: list[int] = []
        for text, quoted in quoting.pieces(self._template.render(said, add_generation_prompt)):
            encoder = self._plain_encoder if quoted else self._encoder
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
        return self._begins_twice(_ids(self._encoder, text, add_special_tokens=False))

    def _begins_twice(self, ids: list[int]) -> bool:
        return self.bos_id is not None and ids[:2] == [self.bos_id, self.bos_id]


def _ids(encoder: Encoder, text: str, add_special_tokens: bool) -> list[int]:
    # Only the library's calls for batches let other threads run meanwhile.
    (encoding,) = encoder.encode_batch_fast([text], add_special_tokens=add_special_tokens)
    ids: list[int] = encoding.ids
    return ids


def _plain(encoder: Encoder) -> Encoder:
    """Takes special tokens for the characters they are spelled with."""
    plain: Encoder = Encoder.from_str(encoder.to_str())
    plain.encode_special_tokens = True
    return plain


def load_tokenizer(source: str) -> ModelTokenizer:
    """The tokenizer of `default`, a folder, a .gguf file or a hub id. ModelError where there
    is none that can be read."""
    path = model_path(source)
    return _of_gguf(path) if path.is_file() else _of_folder(path)


def _of_folder(folder: Path) -> ModelTokenizer:
    encoder = _read_encoder(folder / "tokenizer.json")
    config = folder / "tokenizer_config.json"
    raw = read_json(config) if config.exists() else {}
    special = {f"{name}_token": _content(raw.get(f"{name}_token")) for name in _SPECIAL}
    known = {name: token for name, token in special.items() if token is not None}
    bos = known.get("bos_token")
    return ModelTokenizer(
        encoder,
        ChatTemplate(_template_source(folder, raw), known),
        eos_ids(read_json(folder / "config.json"), folder),
        None if bos is None else encoder.token_to_id(bos),
    )


def _read_encoder(path: Path) -> Encoder:
    if not path.exists():
        raise ModelError(f"{path} is missing: only fast tokenizers are read")
    try:
        encoder = Encoder.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(f"cannot read {path}: {error}") from error
    # Left in some files from training: prompts would be cut or filled up in silence.
    encoder.no_truncation()
    encoder.no_padding()
    return encoder


def _content(token: object) -> str | None:
    value = token.get("content") if isinstance(token, dict) else token
    return value if isinstance(value, str) else None


def _template_source(folder: Path, raw: Mapping[str, object]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.exists():
        return file.read_text(encoding="utf-8")
    found = raw.get("chat_template")
    if isinstance(found, list):
        named = {t.get("name"): t.get("template") for t in found if isinstance(t, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _of_gguf(path: Path) -> ModelTokenizer:
    file = read_gguf(path)
    beside = path.with_name("tokenizer.json")
    encoder = _read_encoder(beside) if beside.exists() else encoder_from_gguf(file)
    template = file.metadata.get("tokenizer.chat_template")
    source = template if isinstance(template, str) else None
    bos = file.metadata.get("tokenizer.ggml.bos_token_id")
    return ModelTokenizer(
        encoder,
        ChatTemplate(source, _gguf_special(file)),
        gguf_eos_ids(file),
        bos if isinstance(bos, int) else None,
    )


def _gguf_special(file: GgufFile) -> dict[str, str]:
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    found: dict[str, str] = {}
    for name, key in names.items():
        token = file.metadata.get(f"tokenizer.ggml.{key}_token_id")
        # Some files name token 2**32 - 1 for none.
        if isinstance(tokens, list) and isinstance(token, int) and 0 <= token < len(tokens):
            found[f"{name}_token"] = str(tokens[token])
    return found
