"""A tokenizer from the metadata of a GGUF file.

A byte-level BPE is complete there but for the rule that cuts text into words, which the file
only names. The rules are those of the models' own tokenizers.
"""

from typing import cast

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from models.errors import ModelError
from models.gguf_file import GgufFile

_CONTROL, _USER_DEFINED = 3, 4
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3, _QWEN2 = _WORDS % "{1,3}", _WORDS % ""
SUPPORTED = ("default", "gpt-2", "smollm", "llama-bpe", "qwen2")


def encoder_from_gguf(file: GgufFile) -> Tokenizer:
    """The tokenizer. ModelError where the file's kind of tokenizer is not supported."""
    meta = file.metadata
    kind, rule = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or rule not in SUPPORTED:
        raise ModelError(
            f"the tokenizer of {file.path.name} ({kind}, {rule}) cannot be rebuilt "
            f"(supported: gpt2 with {', '.join(SUPPORTED)}): put the model's tokenizer.json "
            "beside the file"
        )
    tokens, merges = (_strings(file, f"tokenizer.ggml.{name}") for name in ("tokens", "merges"))
    first, second = zip(*(merge.split(" ", 1) for merge in merges), strict=True)
    encoder = Tokenizer(
        BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=list(zip(first, second, strict=True)),
            ignore_merges=rule == "llama-bpe",
        )
    )
    encoder.pre_tokenizer = _words(str(rule))
    encoder.decoder = decoders.ByteLevel()
    if rule == "qwen2":
        encoder.normalizer = normalizers.NFC()
    _add_special(encoder, tokens, cast(list[int], meta.get("tokenizer.ggml.token_type", [])))
    _add_bos(encoder, file, tokens)
    return encoder


def _strings(file: GgufFile, name: str) -> list[str]:
    found = file.metadata.get(name)
    if not isinstance(found, list) or not found:
        raise ModelError(f"{file.path} has no {name}")
    return cast(list[str], found)


def _words(rule: str) -> pre_tokenizers.PreTokenizer:
    if rule in ("default", "gpt-2"):
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if rule == "smollm":
        first = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence(
            [first, pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    pattern = _LLAMA3 if rule == "llama-bpe" else _QWEN2
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    plain_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, plain_bytes])


def _add_special(encoder: Tokenizer, tokens: list[str], kinds: list[int]) -> None:
    for wanted, add in (
        (_CONTROL, encoder.add_special_tokens),
        (_USER_DEFINED, encoder.add_tokens),
    ):
        found = [t for t, kind in zip(tokens, kinds, strict=False) if kind == wanted]
        add([AddedToken(t, normalized=False, special=wanted == _CONTROL) for t in found])


def _add_bos(encoder: Tokenizer, file: GgufFile, tokens: list[str]) -> None:
    meta = file.metadata
    default = meta.get("tokenizer.ggml.pre") == "llama-bpe"
    bos = meta.get("tokenizer.ggml.bos_token_id")
    if not meta.get("tokenizer.ggml.add_bos_token", default) or not isinstance(bos, int):
        return
    if not 0 <= bos < len(tokens):
        raise ModelError(f"{file.path} begins texts with token {bos} of {len(tokens)}")
    encoder.post_processor = TemplateProcessing(
        single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
    )
