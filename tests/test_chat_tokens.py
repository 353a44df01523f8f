"""Chat templates that look into messages, and messages that spell control tokens.

In a template below `«x»` is the control token `<|x|>` where the template writes it; spelled
out, a token is something that the template looks for. So what is expected follows from these
notes alone: rendered with a letter for each `«x»`, a control token is where such a letter is.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache

import jinja2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE, Unigram, WordLevel
from transformers import PreTrainedTokenizerFast

from models.chat_template import ChatTemplateError
from models.tokenizer import ModelTokenizer

Messages = list[dict[str, str]]

TEMPLATES = {
    "chatml": "{% for m in messages %}{{ '«im_start»' + m['role'] + '\n' + m['content'] "
    "+ '«im_end»' + '\n' }}{% endfor %}{% if add_generation_prompt %}«im_start»assistant\n"
    "{% endif %}",
    # Cuts what was thought out of all answers but the last, as Qwen3 does.
    "qwen3": "{%- set ns = namespace(last=messages|length - 1) %}"
    "{%- for m in messages %}{%- set content = m.content %}"
    "{%- if m.role == 'assistant' %}{%- set thought = '' %}"
    "{%- if '<|/think|>' in content %}"
    "{%- set thought = content.split('<|/think|>')[0].rstrip('\n').split('<|think|>')[-1] %}"
    "{%- set content = content.split('<|/think|>')[-1].lstrip('\n') %}{%- endif %}"
    "{%- if loop.index0 == ns.last and thought %}"
    "{{- '«im_start»' + m.role + '\n«think»\n' + thought.strip('\n') + '\n«/think»\n\n' "
    "+ content }}{%- else %}{{- '«im_start»' ~ m.role ~ '\n' ~ content }}{%- endif %}"
    "{{- '«im_end»\n' }}{%- else %}{{- '«im_start»' + m.role + '\n' + content + '«im_end»\n' }}"
    "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '«im_start»assistant\n' }}"
    "{%- endif %}",
    # The end of thought is named once, looked for and written.
    "deepseek": "{{ bos_token }}{% set end = '«/think»' %}{% for m in messages %}"
    "{% if m['role'] == 'user' %}{{ '«User»' + m['content'] }}{% else %}"
    "{% set content = m['content'] %}{% if end in content %}"
    "{% set content = content.split(end) | last %}{% endif %}"
    "{{ '«Assistant»' + end + content + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '«Assistant»«think»\n' }}{% endif %}",
    "llama3": "{% for m in messages %}{% set content = '«header»' + m['role'] "
    "+ '«/header»\n\n' + m['content'] | trim + '«eot»' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '«header»assistant«/header»\n\n' }}{% endif %}",
    "mistral": "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}"
    "{{ '[INST] ' + m['content'] + ' [/INST]' }}{% elif m['content'].endswith(eos_token) %}"
    "{{ ' ' + m['content'].removesuffix(eos_token) + eos_token }}{% else %}"
    "{{ ' ' + m['content'] | trim + eos_token }}{% endif %}{% endfor %}",
    # A macro, a block, a role by another name, and what is replaced in a message.
    "gemma": "{% macro turn(who, text) %}«turn»{{ who }}\n{{ text | trim }}«/turn»\n"
    "{% endmacro %}{{ bos_token }}{% for m in messages %}"
    "{% set role = 'model' if m.role == 'assistant' else m.role %}"
    "{% set text %}{{ m.content | replace('<|turn|>', '(turn)') }}{% endset %}"
    "{{ turn(role, text.replace('<|/turn|>', '')) }}{% endfor %}"
    "{% if add_generation_prompt %}{{ ['«turn»model', ''] | join('\n') }}{% endif %}",
    "asks": "{% for m in messages %}{% if m.content is in ['<|eot|>', '<|im_end|>'] %}(end)"
    "{% elif m.content.count('<|eot|>') > 1 %}(many)«eot»{% elif m.content == '<|s|>' %}(s)"
    "{% elif m.content[:6] == '<|eot|' %}(begins){% else %}{{ '%s«eot»' % m.content }}"
    "{% endif %}{% endfor %}"
    "{{ messages | selectattr('content', 'eq', '<|/s|>') | list | length }}",
}  # fmt: skip
TOKENS = sorted({*re.findall("«(.*?)»", "".join(TEMPLATES.values())), "s", "/s", "x", "xy"})
SPELLED = [f"<|{name}|>" for name in TOKENS]
LETTERS = {spelled: chr(0xFDD0 + i) for i, spelled in enumerate(SPELLED)}
NAMES = {"bos_token": "<|s|>", "eos_token": "<|/s|>"}


def byte_level() -> Tokenizer:
    names = sorted(pre_tokenizers.ByteLevel.alphabet())
    # As a whole vocabulary may: the merges make a control token out of its letters.
    merges = [("<", "|"), ("|", ">"), ("<|", "s"), ("<|s", "|>"), ("h", "i"), ("Ġ", "hi")]
    names += ["".join(pair) for pair in merges]
    made = Tokenizer(BPE({name: i for i, name in enumerate(names)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(SPELLED)
    return made


def beyond() -> Tokenizer:
    """Control tokens, and one that is none between them, behind the words."""
    names = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(BPE({name: i for i, name in enumerate(names)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(SPELLED[:3])
    made.add_tokens(["<think>"])
    made.add_special_tokens(SPELLED[3:])
    return made


def llama() -> Tokenizer:
    """Bytes for what is no word; whole words are looked up before they are cut."""
    names = ["<unk>", *SPELLED, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"hi<|>s/"]
    vocabulary = {name: i for i, name in enumerate(names)}
    made = Tokenizer(
        BPE(vocabulary, [], byte_fallback=True, ignore_merges=True, unk_token="<unk>")
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    made.add_special_tokens(["<unk>", *SPELLED])
    return made


def unigram() -> Tokenizer:
    """Likes its control tokens so much that it makes them from any text."""
    pieces = [("<unk>", 0.0), *((token, -1.0) for token in SPELLED)]
    pieces += [(f"<0x{byte:02X}>", -9.0) for byte in range(256)] + [("▁", -3.0), ("hi", -3.0)]
    made = Tokenizer(Unigram(pieces, 0, byte_fallback=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    made.add_special_tokens(["<unk>", *SPELLED])
    return made


def words() -> Tokenizer:
    vocabulary = ["<unk>", *SPELLED, "hi", "user", "assistant", "system"]
    made = Tokenizer(
        WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>")
    )
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(["<unk>", *SPELLED])
    return made


def greedy() -> Tokenizer:
    """Control tokens that take the spaces around them."""
    made = beyond()
    sides = [AddedToken(t, lstrip=i % 2 == 0, rstrip=i % 3 == 0) for i, t in enumerate(SPELLED)]
    fresh = Tokenizer(made.model)
    fresh.pre_tokenizer, fresh.decoder = made.pre_tokenizer, made.decoder
    fresh.add_special_tokens(sides)
    return fresh


ENCODERS = {f.__name__: f for f in (byte_level, beyond, llama, unigram, words, greedy)}


@cache
def ours(template: str, encoder: str = "byte_level") -> ModelTokenizer:
    source = re.sub("«(.*?)»", r"<|\1|>", TEMPLATES[template])
    return ModelTokenizer(ENCODERS[encoder](), source, NAMES, (), "")


@cache
def theirs(template: str, encoder: str = "byte_level") -> PreTrainedTokenizerFast:
    source = re.sub("«(.*?)»", r"<|\1|>", TEMPLATES[template])
    made = ENCODERS[encoder]()
    return PreTrainedTokenizerFast(tokenizer_object=made, chat_template=source, **NAMES)


@cache
def annotated(template: str) -> jinja2.Template:
    """Writes a letter for each control token, but looks for the token."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    source = re.sub("«(.*?)»", lambda x: LETTERS[f"<|{x[1]}|>"], TEMPLATES[template])
    # What is named once is written and looked for; and the names are.
    for name, spelled in {"end": "<|/think|>", **NAMES}.items():
        source = source.replace(f"if {name} in", f"if '{spelled}' in")
        source = re.sub(
            rf"(split|endswith|removesuffix)\({name}\)", rf"\1('{spelled}')", source
        )
    return environment.from_string(source)


def expected(template: str, messages: Messages) -> tuple[str, list[str]]:
    """The prompt's text, and the control tokens in it that the template wrote."""
    names = {name: LETTERS[token] for name, token in NAMES.items()}
    text = annotated(template).render(messages=messages, add_generation_prompt=True, **names)
    wrote = {letter: token for token, letter in LETTERS.items()}
    tokens = [wrote[c] for c in text if c in wrote]
    return "".join(wrote.get(c, c) for c in text), tokens


def check(template: str, messages: Messages) -> None:
    text, tokens = expected(template, messages)
    for encoder in ("byte_level", "beyond"):
        tokenizer = ours(template, encoder)
        ids = tokenizer.chat(messages)
        special = [tokenizer.decode([i], False) for i in ids if i in tokenizer.special_ids]
        assert special == tokens
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


WORDS = ["hi", " ", "\n", "<b>é</b>", "日本", "[INST]", "12", "it's", "<", "|>", "user"]
PIECES = [
    *SPELLED, *(t[:i] for t in SPELLED[:6] for i in (1, 2, 4)), *(t[-3:] for t in SPELLED),
    "|>", "<|", "<", "y|>", "\U0010fffd", "\U0010fffc", "\U000f0000", "\ufffe", "\x00",
    "<think>", "</think>", "{{ bos_token }}", "<0x0A>", "▁", *WORDS,
]  # fmt: skip


def conversations(pieces: Sequence[str]) -> st.SearchStrategy[Messages]:
    text = st.lists(st.sampled_from(pieces), max_size=8).map("".join)
    roles = st.sampled_from(["user", "assistant", "system"])
    message = st.fixed_dictionaries({"role": roles, "content": text})
    return st.lists(message, min_size=1, max_size=4)


def turns(*contents: str) -> Messages:
    roles = ["user", "assistant"] * len(contents)
    return [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]


@pytest.mark.parametrize("template", TEMPLATES)
@given(messages=conversations(PIECES))
@example(turns("hi", "<|think|>a<|/think|>b", "c", "<|think|>\nd\n<|/think|>\n\ne"))
@example(turns("<|eot|>"))
@example(turns("<|eot|><|eot|>", "<|s|>", "<|/s|>", "<|eot|"))
@example(turns("<|im_", "end|><|im_<|im_end|>end|>", "\U0010fffd<|x|>y|>"))
@settings(max_examples=60, deadline=None)
def test_a_template_sees_what_was_sent_and_no_message_spells_a_control_token(
    template: str, messages: Messages
) -> None:
    check(template, messages)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("template", TEMPLATES)
@given(messages=conversations(WORDS))
@settings(max_examples=10, deadline=None)
def test_tokens_of_plain_messages_are_those_of_transformers(
    template: str, encoder: str, messages: Messages
) -> None:
    said = theirs(template, encoder).apply_chat_template(messages, add_generation_prompt=True)
    assert ours(template, encoder).chat(messages) == said["input_ids"]


@pytest.mark.parametrize("encoder", ENCODERS)
@given(messages=conversations(PIECES))
@settings(max_examples=25, deadline=None)
def test_no_kind_of_vocabulary_makes_a_control_token_from_a_message(
    encoder: str, messages: Messages
) -> None:
    tokenizer = ours("chatml", encoder)
    unknown = tokenizer._encoder.token_to_id("<unk>")
    special = [i for i in tokenizer.chat(messages) if i in tokenizer.special_ids - {unknown}]
    _, tokens = expected("chatml", messages)
    assert special == [tokenizer._encoder.token_to_id(token) for token in tokens]


ROLE_TOKENS = ["<|user|>", "<|assistant|>", "<|end|>", "<|x|>"]
COMPOSED = {
    "text": "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>{% endfor %}",
    "sum": "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '<|end|>' }}"
    "{% endfor %}",
    "joined": "{% for message in messages %}{% set role = message.role %}"
    "{{ '<|' ~ role ~ '|>\n' ~ message.content ~ '<|end|>' }}{% endfor %}",
}


@pytest.mark.parametrize("template", COMPOSED)
def test_a_control_token_that_a_template_makes_of_a_role_is_one(template: str) -> None:
    made = byte_level()
    made.add_special_tokens(ROLE_TOKENS)
    tokenizer = ModelTokenizer(made, COMPOSED[template], {}, (), "")
    reference = PreTrainedTokenizerFast(tokenizer_object=made, chat_template=COMPOSED[template])
    plain = turns("hi", "<b>", "hi")
    assert tokenizer.chat(plain) == reference.apply_chat_template(plain)["input_ids"]
    for role in ("end", "x", "user|><|end", "<|user|>", "tool"):
        ids = tokenizer.chat([{"role": role, "content": "hi<|user|>"}])
        end = tokenizer.encode("<|end|>")
        assert [i for i in ids if i in tokenizer.special_ids] == end
        text = f"<|{role}|>\nhi<|user|><|end|>"
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_an_end_token_that_is_not_special_is_still_no_word_of_a_message() -> None:
    made = byte_level()
    made.add_tokens(["<end>", "<tool>"])
    end, tool = made.token_to_id("<end>"), made.token_to_id("<tool>")
    template = "{{ messages[0].content }}<end>"
    tokenizer = ModelTokenizer(made, template, {}, (end,), "")
    ids = tokenizer.chat([{"role": "user", "content": "<tool><end>"}])
    assert (ids[0], ids.count(end), ids[-1]) == (tool, 1, end)


@pytest.mark.parametrize("token", ["<｜User｜>", "<|sep|>", "<|tool▁sep\n|>"])
def test_what_looks_like_a_control_token_is_one_though_its_file_calls_it_not_special(
    token: str,
) -> None:
    made = byte_level()
    made.add_tokens([token])
    template = "{{ bos_token }}{% for m in messages %}" + token + "{{ m.content }}{% endfor %}"
    tokenizer = ModelTokenizer(made, template, NAMES, (), "")
    reference = PreTrainedTokenizerFast(tokenizer_object=made, chat_template=template, **NAMES)
    plain = turns("hi", "no")
    assert tokenizer.chat(plain) == reference.apply_chat_template(plain)["input_ids"]
    ids = tokenizer.chat(turns(f"hi{token}no"))
    assert ids.count(made.token_to_id(token)) == 1
    assert tokenizer.decode(ids) == f"{token}hi{token}no"


def test_a_template_that_complains_says_so_in_its_own_words() -> None:
    template = "{{ raise_exception('no <|eot|> here: ' + messages[0].content) }}"
    tokenizer = ModelTokenizer(byte_level(), template, {}, (), "")
    with pytest.raises(ChatTemplateError, match=re.escape("no <|eot|> here: <|s|>")):
        tokenizer.chat([{"role": "user", "content": "<|s|>"}])


def test_a_template_may_ask_what_it_wrote_itself() -> None:
    template = (
        "{% set out = bos_token + messages[0].content + eos_token %}{{ out }}"
        "{% if out.startswith(bos_token) and out.endswith('<|/s|>') %}(whole){% endif %}"
        "{{ out.count('<|s|>') }}{{ eos_token in out }}"
    )
    reference = PreTrainedTokenizerFast(
        tokenizer_object=byte_level(), chat_template=template, **NAMES
    )
    plain = turns("hi")
    said = reference.apply_chat_template(plain)["input_ids"]
    assert ModelTokenizer(byte_level(), template, NAMES, (), "").chat(plain) == said


def test_a_word_of_a_template_may_be_a_control_token() -> None:
    made = byte_level()
    made.add_special_tokens(["user", "content"])
    template = (
        "{{ {'user': 'user', 'hi': 'no'}[messages[0]['role']] + messages[0]['content'] }}"
    )
    reference = PreTrainedTokenizerFast(tokenizer_object=made, chat_template=template)
    said = reference.apply_chat_template(turns("hi"))["input_ids"]
    assert ModelTokenizer(made, template, {}, (), "").chat(turns("hi")) == said


def test_a_template_that_cannot_be_followed_is_found_out() -> None:
    makes = "{{ '<|' }}{{ 'eot' }}{{ '|>' }}"  # no text of the template has the whole token
    assert ModelTokenizer(byte_level(), makes, NAMES, (), "").misreads_template
    assert not any(
        ours(template, e).misreads_template for template in TEMPLATES for e in ENCODERS
    )


def test_messages_stay_as_the_caller_made_them() -> None:
    messages: list[Mapping[str, str]] = [{"role": "user", "content": "\U0010fffd<|eot|>"}]
    before = [dict(message) for message in messages]
    ours("chatml").chat(messages)
    assert messages == before
