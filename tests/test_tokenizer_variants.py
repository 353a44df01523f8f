"""The files that a folder's tokenizer may consist of: each variant gives the tokens that
transformers gives. A variant is a line of `VARIANTS`."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers.models import BPE
from transformers import AutoTokenizer

from models.errors import ModelError
from models.tokenizer import ModelTokenizer, of_folder
from models.tokenizer_files import read_tokenizer_files, resolve

CORPUS = [
    "Hello world, it's 1234 and\n\n\tdéjà vu 日本語 x=f(1)\r\n  end ",
    "user system say hi",
]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{{ eos_token }}\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "<think>{% endif %}"
)
CHAT = [
    {"role": "system", "content": " say hi "},
    {"role": "user", "content": "Hello world 12 <b>é</b>"},
    {"role": "assistant", "content": "it's\n\n1234"},
]
TEXTS = [
    "Hello  world 1234 日本語 😀",
    "a<s> b </s>c<|im_start|> d <think>e <extra>f<|im_end|>",
    " x <mask> y<mask>z <|far|>q",
    "",
]
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]

Change = Callable[[Path], None]


def trained(
    special: Sequence[str] = SPECIAL, metaspace: bool = False, bytes_are_special: bool = False
) -> Tokenizer:
    made = Tokenizer(BPE(unk_token="<unk>" if metaspace else None, byte_fallback=metaspace))
    if metaspace:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        made.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
    else:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)] if metaspace else []
    alphabet = [] if metaspace else pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400 + len(bytes_),
        special_tokens=[*special, *bytes_],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator(CORPUS * 3, trainer)
    if bytes_ and not bytes_are_special:
        raw = json.loads(made.to_str())
        raw["added_tokens"] = raw["added_tokens"][: len(special)]
        made = Tokenizer.from_str(json.dumps(raw))
    return made


def write(path: Path, **files: object) -> None:
    """Files by their names with two underscores for the dot."""
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (path / name.replace("__", ".")).write_text(text, encoding="utf-8")


def config(**changes: object) -> Change:
    """tokenizer_config.json with other values; None takes a key out."""

    def change(path: Path) -> None:
        file = path / "tokenizer_config.json"
        raw = json.loads(file.read_text()) | changes
        write(path, tokenizer_config__json={k: v for k, v in raw.items() if v is not None})

    return change


def encoder(
    change: Callable[[Tokenizer], object], start: Callable[[], Tokenizer] = trained
) -> Change:
    def changed(path: Path) -> None:
        made = start()
        change(made)
        made.save(str(path / "tokenizer.json"))

    return changed


def files(**contents: object) -> Change:
    return lambda path: write(path, **contents)


def both(*changes: Change) -> Change:
    def change(path: Path) -> None:
        for one in changes:
            one(path)

    return change


def begins(made: Tokenizer) -> None:
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )


def token(content: str, **flags: bool) -> dict[str, object]:
    plain = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    return {"content": content, **plain, "special": True, **flags}


def cut_short(made: Tokenizer) -> None:
    made.enable_truncation(4)
    made.enable_padding(length=64, pad_id=0, pad_token="<unk>")


def words_and_merges(path: Path) -> None:
    """What there was before tokenizer.json."""
    model = json.loads((path / "tokenizer.json").read_text())["model"]
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    write(path, vocab__json=model["vocab"], merges__txt=f"#version: 0.2\n{merges}\n")
    (path / "tokenizer.json").unlink()


def llama(*changes: Change) -> Change:
    start = encoder(lambda _: None, lambda: trained(metaspace=True))
    return both(start, config(tokenizer_class="LlamaTokenizer"), *changes)


FAR = {
    "700": token("<|far|>"),
    "701": token("<mask>", lstrip=True),
    "702": token("<extra>", rstrip=True, special=False),
    "703": token("<think>", normalized=True, special=False),
}
NO_NAMES = config(bos_token=None, eos_token=None)
VARIANTS: dict[str, Change] = {
    "plain": both(),
    "special_tokens_map": both(
        NO_NAMES,
        files(special_tokens_map__json={"bos_token": "<s>", "eos_token": token("<|im_end|>")}),
    ),
    "added_tokens": files(added_tokens__json={"<extra>": 400, "<think>": 401}),
    "added_tokens, one special": both(
        config(eos_token="<extra>"), files(added_tokens__json={"<extra>": 400, "<think>": 401})
    ),
    "added_tokens_decoder": config(added_tokens_decoder=FAR),
    "added_tokens_decoder of a Llama": llama(config(added_tokens_decoder=FAR)),
    "flags in tokenizer.json": encoder(
        lambda t: t.add_special_tokens([token_of("<mask>", lstrip=True, rstrip=True)])
    ),
    "single words": encoder(lambda t: t.add_tokens([token_of("<think>", single_word=True)])),
    "normalised": both(
        encoder(lambda t: setattr(t, "normalizer", normalizers.Lowercase())),
        config(added_tokens_decoder={"700": token("<THINK>", normalized=True, special=False)}),
    ),
    "a named token as a dict": config(
        eos_token={"__type": "AddedToken", "content": "<|im_end|>"}
    ),
    "no eos": config(eos_token=None),
    "a new eos": config(eos_token="<|far|>"),
    "extra_special_tokens": config(extra_special_tokens=["<extra>", "<|far|>"]),
    "extra_special_tokens by name": config(extra_special_tokens={"image_token": "<extra>"}),
    "additional_special_tokens": config(additional_special_tokens=["<extra>"]),
    "a token that only this model has": config(image_token="<extra>"),
    "add_bos_token": config(add_bos_token=True, add_eos_token=True),
    "bos from template and post-processor": encoder(begins),
    "truncation and padding": encoder(cut_short),
    "named templates": config(
        chat_template=[
            {"name": "tool_use", "template": "t"},
            {"name": "default", "template": TEMPLATE + "!"},
        ]
    ),
    "further templates": both(
        lambda path: (path / "additional_chat_templates").mkdir(),
        lambda path: write(path / "additional_chat_templates", tool_use__jinja="t"),
        files(chat_template__jinja=TEMPLATE + "?"),
    ),
    "tokenizer.json alone": lambda path: (path / "tokenizer_config.json").unlink(),
    "the family's class": both(
        config(tokenizer_class="LlamaTokenizer"),
        files(config__json={"model_type": "qwen2", "vocab_size": 800, "eos_token_id": 2}),
    ),
    "an unknown family": files(config__json={"model_type": "new", "eos_token_id": 2}),
    "chat_template.jinja": files(chat_template__jinja=TEMPLATE + "?"),
    "qwen2": config(tokenizer_class="Qwen2Tokenizer"),
    "qwen2, prefix": config(tokenizer_class="Qwen2Tokenizer", add_prefix_space=True),
    "qwen2, old files": both(config(tokenizer_class="Qwen2Tokenizer"), words_and_merges),
    "gpt2, old files": both(
        config(tokenizer_class="GPT2Tokenizer", add_bos_token=True), words_and_merges
    ),
    "llama": llama(),
    "llama, special bytes": both(
        encoder(lambda _: None, lambda: trained(metaspace=True, bytes_are_special=True)),
        config(tokenizer_class="LlamaTokenizer"),
    ),
    "llama, legacy": llama(config(legacy=True, add_prefix_space=False)),
    "llama, bos and eos": llama(config(add_bos_token=True, add_eos_token=True)),
    "llama, byte level": config(tokenizer_class="LlamaTokenizer"),
    "no class": config(tokenizer_class=None),
    "a class that nobody knows": config(tokenizer_class="OurOwnTokenizerFast"),
}


def token_of(content: str, **flags: bool) -> object:
    from tokenizers import AddedToken

    return AddedToken(content, normalized=False, **flags)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain")
    trained().save(str(path / "tokenizer.json"))
    write(
        path,
        config__json={"model_type": "llama", "vocab_size": 800, "eos_token_id": 2},
        tokenizer_config__json={
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "<|im_end|>",
            "chat_template": TEMPLATE,
        },
    )
    return path


def made(plain: Path, path: Path, change: Change) -> Path:
    shutil.copytree(plain, path)
    change(path)
    return path


def read(path: Path) -> ModelTokenizer:
    """In this process, for speed."""
    return of_folder(path, resolve(path))


def compare(path: Path) -> None:
    """Ids and texts of a folder with those of transformers, and what ends an answer."""
    theirs, ours = AutoTokenizer.from_pretrained(path), read(path)
    for text in TEXTS:
        for special in (True, False):
            ids = theirs(text, add_special_tokens=special, truncation=False, padding=False)
            assert ours.encode(text, special) == ids["input_ids"], text
            assert ours.decode(ids["input_ids"], special) == theirs.decode(
                ids["input_ids"], skip_special_tokens=special
            )
    assert ours.has_chat_template == (theirs.chat_template is not None)
    for generating in (True, False) if ours.has_chat_template else ():
        said = theirs.apply_chat_template(
            CHAT, add_generation_prompt=generating, truncation=False, padding=False
        )
        assert ours.chat(CHAT, generating) == said["input_ids"]
    ends = {2} if theirs.eos_token_id is None else {2, theirs.eos_token_id}
    assert set(ours.eos_ids) == ends
    assert ours.bos_id == theirs.bos_token_id


@pytest.mark.parametrize("variant", VARIANTS)
def test_tokens_are_those_of_transformers(variant: str, plain: Path, tmp_path: Path) -> None:
    compare(made(plain, tmp_path / "m", VARIANTS[variant]))


def test_a_sentencepiece_model_alone_is_refused_with_what_to_do(
    plain: Path, tmp_path: Path
) -> None:
    path = made(plain, tmp_path / "m", lambda path: (path / "tokenizer.json").unlink())
    (path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(ModelError, match=r"only a tokenizer\.model.*save_pretrained"):
        read_tokenizer_files(path)


def test_a_model_of_more_than_text_has_its_template_elsewhere(
    plain: Path, tmp_path: Path
) -> None:
    elsewhere = files(chat_template__json={"chat_template": TEMPLATE + "!"})
    path = made(plain, tmp_path / "m", both(config(chat_template=None), elsewhere))
    assert read(path).chat(CHAT) == [*read(plain).chat(CHAT), *read(plain).encode("!")]


def test_what_no_template_is_for_says_so(plain: Path, tmp_path: Path) -> None:
    tools = [{"name": "tool_use", "template": TEMPLATE}]
    path = made(plain, tmp_path / "m", config(chat_template=tools))
    assert not read(path).has_chat_template


REFUSED: dict[str, tuple[Change, str]] = {
    "no file that the class reads": (
        both(config(tokenizer_class="LlamaTokenizer"), words_and_merges),
        "LlamaTokenizer finds no vocabulary",
    ),
    "code of its own": (
        config(tokenizer_class="Mine", auto_map={"AutoTokenizer": ["mine.Mine", None]}),
        "custom code",
    ),
    "a special token that is no token": (config(bos_token={"content": "<s>"}), "bos_token"),
    "not JSON": (files(tokenizer__json="{"), "line 1 column 2"),
}


@pytest.mark.parametrize("variant", REFUSED)
def test_what_cannot_be_read_is_refused_with_the_reason(
    variant: str, plain: Path, tmp_path: Path
) -> None:
    change, reason = REFUSED[variant]
    with pytest.raises(Exception, match=reason):  # of whatever kind the library raises
        resolve(made(plain, tmp_path / "m", change))


def test_the_reason_of_the_other_process_is_one_line(plain: Path, tmp_path: Path) -> None:
    change, reason = REFUSED["code of its own"]
    path = made(plain, tmp_path / "m", change)
    with pytest.raises(ModelError, match=rf"cannot read the tokenizer in {path}.*{reason}.*\Z"):
        read_tokenizer_files(path)


def test_what_an_interpreter_prints_as_it_starts_is_no_part_of_the_answer(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('an agent is here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert read_tokenizer_files(plain) == resolve(plain)
