"""A tokenizer from the metadata of a GGUF file.

A byte-level BPE is complete there but for the rule that cuts text into words, which the file
only names. The rules are those of the models' own tokenizers; `default`, which stands for none,
is llama.cpp's.
"""

from collections.abc import Iterable
from itertools import zip_longest
from typing import cast

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from models.errors import ModelError
from models.gguf_file import GgufFile

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3, _QWEN2 = (_WORDS % "{1,3}",), (_WORDS % "",)
_DEFAULT = (
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)
_PATTERNS = {
    "default": _DEFAULT,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}
SUPPORTED = ("gpt-2", "smollm", *_PATTERNS)
_LLAMA3_BEGINS = "<|begin_of_text|>"
_ENDS = frozenset((
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>",
    "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>",
    "<eos>", "<turn|>",
))  # fmt: skip
"""Tokens that end a turn in every file that has them, as in llama.cpp's loader."""


def names_rule(file: GgufFile) -> bool:
    """Whether the file says which rule cuts its texts into words. Older ones do not."""
    return bool(file.metadata.get("tokenizer.ggml.pre"))


def word_rule(file: GgufFile) -> str:
    """The rule that cuts text into words. If the file names none, that of its family where
    there is one, and llama.cpp's for such files otherwise."""
    if names_rule(file):
        return str(file.metadata["tokenizer.ggml.pre"])
    if str(file.metadata.get("general.architecture")).startswith("qwen"):
        return "qwen2"
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    is_llama3 = isinstance(tokens, list) and _LLAMA3_BEGINS in tokens
    return "llama-bpe" if is_llama3 else "default"


def encoder_from_gguf(file: GgufFile) -> Tokenizer:
    """The tokenizer. ModelError where the file's kind of tokenizer is not supported."""
    kind, rule = file.metadata.get("tokenizer.ggml.model"), word_rule(file)
    if kind != "gpt2" or rule not in SUPPORTED:
        raise ModelError(
            f"the tokenizer of {file.path.name} ({kind}, {rule}) cannot be rebuilt "
            f"(supported: gpt2 with {', '.join(SUPPORTED)}): put the model's tokenizer.json "
            "beside the file"
        )
    tokens, merges = (_strings(file, f"tokenizer.ggml.{name}") for name in ("tokens", "merges"))
    is_llama3 = _PATTERNS.get(rule) is _LLAMA3
    encoder = Tokenizer(_pairs(file, tokens, merges, is_llama3))
    encoder.pre_tokenizer = _words(rule)
    encoder.decoder = decoders.ByteLevel()
    if rule == "qwen2":
        encoder.normalizer = normalizers.NFC()
    _add_special(encoder, tokens, _kinds(file))
    _add_ends(encoder, file, tokens, is_llama3)
    return encoder


def _pairs(file: GgufFile, tokens: list[str], merges: list[str], whole_words: bool) -> BPE:
    vocabulary = {token: i for i, token in enumerate(tokens)}
    try:
        pairs = [(first, second) for first, second in (m.split(" ", 1) for m in merges)]
        for first, second in pairs:  # some of which the library panics at
            if first + second not in vocabulary:
                raise ValueError(f"{first + second!r} is no token")
        return BPE(vocab=vocabulary, merges=pairs, ignore_merges=whole_words)
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(
            f"tokenizer.ggml.merges of {file.path.name} do not suit its tokens: {error}"
        ) from error


def special_tokens(file: GgufFile) -> dict[str, str]:
    """Tokens by the names that templates know."""
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    return {
        f"{name}_token": str(cast(list[str], tokens)[token])
        for name, key in names.items()
        for token in _valid_ids(file, [key])
    }


def end_ids(file: GgufFile) -> list[int]:
    """Ends of sequence, turn and message: those that the file names, then those that it has."""
    tokens, kinds = file.metadata.get("tokenizer.ggml.tokens"), _kinds(file)
    added = (
        i
        for i, (token, kind) in enumerate(
            zip(cast(list[str], tokens or []), kinds, strict=False)
        )
        if kind in (_CONTROL, _USER_DEFINED) and token in _ENDS
    )
    return list(dict.fromkeys([*_valid_ids(file, ["eos", "eot", "eom"]), *added]))


def _valid_ids(file: GgufFile, names: Iterable[str]) -> list[int]:
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    size = len(tokens) if isinstance(tokens, list) else 0
    found = (file.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in names)
    # Some files name token 2**32 - 1 for none.
    return [id for id in found if isinstance(id, int) and 0 <= id < size]


def _kinds(file: GgufFile) -> list[int]:
    """Types of the tokens; one that begins or ends texts, or looks as if it ends a turn, is a
    control token even if the file gives it another type."""
    tokens = cast(list[str], file.metadata.get("tokenizer.ggml.tokens") or [])
    said = cast(list[int], file.metadata.get("tokenizer.ggml.token_type") or [])
    kinds = [
        _CONTROL if token in _ENDS and token.startswith("<|") else kind
        for token, kind in zip_longest(tokens, said[: len(tokens)], fillvalue=_NORMAL)
    ]
    for named in _valid_ids(file, ["bos", "eos", "eot", "eom"]):
        kinds[named] = _CONTROL
    return kinds


def _strings(file: GgufFile, name: str) -> list[str]:
    found = file.metadata.get(name)
    if not isinstance(found, list) or not found:
        raise ModelError(f"{file.path} has no {name}")
    return cast(list[str], found)


def _words(rule: str) -> pre_tokenizers.PreTokenizer:
    if rule == "gpt-2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if rule == "smollm":
        first = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence(
            [first, pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    splits = [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in _PATTERNS[rule]
    ]
    plain_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*splits, plain_bytes])


def _add_special(encoder: Tokenizer, tokens: list[str], kinds: list[int]) -> None:
    for wanted, add in (
        (_CONTROL, encoder.add_special_tokens),
        (_USER_DEFINED, encoder.add_tokens),
    ):
        found = [t for t, kind in zip(tokens, kinds, strict=False) if kind == wanted]
        add([AddedToken(t, normalized=False, special=wanted == _CONTROL) for t in found])


def _add_ends(encoder: Tokenizer, file: GgufFile, tokens: list[str], adds_bos: bool) -> None:
    """What the file puts before and behind a text; `adds_bos` where it does not say."""
    ends: dict[str, list[tuple[str, int]]] = {}
    for name, default in (("bos", adds_bos), ("eos", False)):
        id = file.metadata.get(f"tokenizer.ggml.{name}_token_id")
        wanted = file.metadata.get(f"tokenizer.ggml.add_{name}_token", default)
        ends[name] = []
        if wanted and isinstance(id, int):
            if not 0 <= id < len(tokens):
                raise ModelError(f"{file.path} adds token {id} of {len(tokens)} to texts")
            ends[name] = [(tokens[id], id)]
    pieces = [*(t for t, _ in ends["bos"]), "$A", *(t for t, _ in ends["eos"])]
    if len(pieces) > 1:
        encoder.post_processor = TemplateProcessing(
            single=pieces, special_tokens=[*ends["bos"], *ends["eos"]]
        )
