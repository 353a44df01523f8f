"""What goes wrong with a model, beside its rows."""

from contextlib import suppress
from pathlib import Path

_POINTER = b"version https://git-lfs"


class ModelError(Exception):
    """A model cannot be found, read or served. The message is one line and complete."""


def unreadable(path: Path, why: str) -> ModelError:
    """Why a file of a model cannot be read; a pointer that git left in place of a large file
    is named so."""
    with suppress(OSError), path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            why = "it is a pointer of Git LFS, not the file itself (git lfs pull fetches that)"
    return ModelError(f"cannot read {path}: {why}")


class DeviceLost(Exception):
    """The device that computes failed or is out of memory: whatever it holds is lost, and
    the process has to end."""


class PromptTooLong(Exception):
    """A conversation has more tokens than were allowed: `least_tokens` or more."""

    def __init__(self, least_tokens: int) -> None:
        super().__init__(f"at least {least_tokens} tokens")
        self.least_tokens = least_tokens
