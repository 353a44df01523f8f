"""A folder's tokenizer, as transformers resolves its files.

What a folder means depends on a dozen files and on the class that they name, which is the
library's own knowledge. The library takes a second and 40 MB to import, so it runs in a process
that ends when it has answered (`python -m models.tokenizer_files FOLDER`).
"""

import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path

from models.errors import ModelError

FILES = ("tokenizer.json", "vocab.json", "tekken.json")
_SAVE = "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
_NO_VOCABULARY = 8
"""So few words has a class that found none of its files and made its own beginning."""
_ANSWER = "\0"
"""Stands before the answer, which other lines may precede: an interpreter that is set up to
say something (sitecustomize, a tracing agent) does so in this process too."""


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """`encoder` is a tokenizer of the `tokenizers` library in its own JSON, `special` the
    tokens by the names that templates know, `kind` the class that read the files."""

    encoder: str
    special: dict[str, str]
    eos_id: int | None
    template: str | None
    kind: str


def read_tokenizer_files(folder: Path) -> TokenizerFiles:
    """What transformers makes of the folder. ModelError with its reason if that fails."""
    if not any((folder / name).exists() for name in FILES):
        if (folder / "tokenizer.model").exists():
            # Reading it takes a package whose versions have to suit those of others.
            raise ModelError(
                f"{folder} has only a tokenizer.model, which is not read: make a "
                f"tokenizer.json of it where the package sentencepiece is installed ({_SAVE})"
            )
        raise ModelError(f"{folder} has no tokenizer: one of {', '.join(FILES)} is needed")
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "models.tokenizer_files", str(folder)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    if ran.returncode:
        reason = (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
        raise ModelError(f"cannot read the tokenizer in {folder}: {reason}")
    return TokenizerFiles(**json.loads(ran.stdout.rpartition(_ANSWER)[2]))


def resolve(folder: Path) -> TokenizerFiles:
    """The same in this process, which transformers is imported into. Raises what it raises."""
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=False
    )
    encoder = getattr(found, "backend_tokenizer", None)
    kind = type(found).__name__
    if encoder is None:
        raise ValueError(f"{kind} has no fast tokenizer: save it as tokenizer.json")
    if encoder.get_vocab_size(with_added_tokens=False) < _NO_VOCABULARY:
        raise ValueError(f"{kind} finds no vocabulary: save the tokenizer as tokenizer.json")
    return TokenizerFiles(
        encoder=encoder.to_str(),
        special=found.special_tokens_map,
        eos_id=found.eos_token_id,
        template=_template(found.chat_template) or _processor_template(folder),
        kind=kind,
    )


def _template(found: object) -> str | None:
    # Several are named; `default` is for chats without tools.
    template = found.get("default") if isinstance(found, dict) else found
    return template if isinstance(template, str) else None


def _processor_template(folder: Path) -> str | None:
    """That of a model of more than text, in a file which tokenizers do not look at."""
    path = folder / "chat_template.json"
    return (
        json.loads(path.read_text(encoding="utf-8"))["chat_template"] if path.exists() else None
    )


def _main() -> None:
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    # Not to be found: it would be imported too, for another second and 200 MB.
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        with redirect_stdout(sys.stderr):  # what libraries print is no answer
            found = resolve(Path(sys.argv[1]))
        print(_ANSWER + json.dumps(asdict(found)))
    except Exception as error:  # of any kind: the files are of unknown origin
        line = next(iter(str(error).strip().splitlines()), "")
        sys.exit(f"{line or type(error).__name__}")


if __name__ == "__main__":
    _main()
