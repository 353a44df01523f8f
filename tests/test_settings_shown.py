"""`walkway settings`, suggestions for what is misspelt, and sizes in units."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from models.sizes import apart, in_units, read_size
from service.config import ConfigError, load_settings
from service.provenance import names


def settings(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["settings", *arguments], env={"COLUMNS": "80"})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "w.toml"
    path.write_text('[memory]\npool_bytes = "512MiB"\n\n[server]\nport = 1\n')
    return path


def test_every_setting_is_listed_with_its_value_and_what_it_means() -> None:
    found = {one["name"]: one for one in json.loads(settings("--json").stdout)}
    assert list(found) == names()
    assert found["server.port"]["value"] == found["server.port"]["default"] == 50051
    assert found["engine.target_gap_ms"]["unit"] == "milliseconds"
    assert found["memory.host_bytes"]["unit"] == "bytes"
    assert found["model.source"]["unit"] is None
    assert "Address to listen on." in found["server.host"]["description"]


def test_the_strongest_source_of_each_value_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALKWAY_SERVER__PORT", "2")
    monkeypatch.setenv("walkway_engine__threads", "3")
    said = settings("--config", str(file), "--set", "server.host=::1", "--json")
    source = {one["name"]: one["source"] for one in json.loads(said.stdout)}
    assert source["server.host"] == "command line"
    assert source["server.port"] == source["engine.threads"] == "environment"
    assert source["memory.pool_bytes"] == f"file {file}"
    assert source["memory.page_size"] == "default"


def test_a_changed_value_is_shown_with_its_default(file: Path) -> None:
    said = settings("memory.pool_bytes", "--config", str(file)).stdout
    head, *described = said.splitlines()
    assert head == f"memory.pool_bytes = 512 MiB  # file {file} (default: absent)"
    assert "must fit" in described[0]


def test_a_group_or_single_settings_can_be_asked_for() -> None:
    lines = settings("log", "server.request_timeout_s").stdout.splitlines()
    heads = [line.partition(" = ")[0] for line in lines if not line.startswith(" ")]
    assert heads == ["server.request_timeout_s", "log.format", "log.level"]


def test_the_list_fits_80_columns_where_nothing_was_changed() -> None:
    lines = settings().stdout.splitlines()
    assert max(map(len, lines)) <= 80


def test_an_infinite_time_is_json_too() -> None:
    (found,) = json.loads(
        settings("server.grace_s", "--set", "server.grace_s=inf", "--json").stdout
    )
    assert found["value"] == "inf"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("memory.pol_bytes=1", "memory.pool_bytes"),
        ("server.pool_bytes=1", "memory.pool_bytes"),
        ("memry.pool_bytes=1", "memory"),
        ("memry={}", "memory"),
        ("page_size=1", "memory.page_size"),
        ("port=1", "server.port or metrics.port or admin.port"),
    ],
)
def test_a_misspelt_setting_is_answered_with_the_nearest(given: str, meant: str) -> None:
    for command in ("serve", "settings", "doctor"):
        said = CliRunner().invoke(app, [command, "--set", given])
        assert said.exit_code == 2
        assert said.stderr.endswith(f"did you mean {meant}?\n")
        assert len(said.stderr.splitlines()) == 1


def test_what_resembles_nothing_gets_no_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"unknown$"):
        load_settings(assignments=["memory.zzzzzzzz=1"])


def test_a_misspelt_variable_is_answered_in_its_own_spelling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WALKWAY_SEVER__PORT", "1")
    with pytest.raises(ConfigError, match=r"did you mean WALKWAY_SERVER__PORT\?$"):
        load_settings()


def test_a_name_that_is_asked_for_and_none_is_a_mistake_in_the_call() -> None:
    said = settings("memory.pol_bytes")
    assert said.exit_code == 2
    assert said.stderr == (
        "walkway: no setting or group memory.pol_bytes; did you mean memory.pool_bytes?\n"
    )


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("2147483648", 2**31),
        ("2GiB", 2**31),
        ("2 gib", 2**31),
        ("2Gi", 2**31),
        ("2GB", 2 * 10**9),
        ("2G", 2 * 10**9),
        ("1.5KiB", 1536),
        (".5MiB", 2**19),
        ("17B", 17),
    ],
)
def test_a_size_is_read_as_it_is_written(text: str, size_bytes: int) -> None:
    assert read_size(text) == size_bytes
    chosen = load_settings(assignments=[f"memory.host_bytes={text}"])
    assert chosen.memory.host_bytes == size_bytes


SIZES = [name for name in names() if name.endswith("_bytes")]


@pytest.mark.parametrize("name", SIZES)
def test_every_size_may_be_given_in_units(name: str) -> None:
    group, _, field = name.partition(".")
    chosen = load_settings(assignments=[f"{name}=8MiB"])
    assert getattr(getattr(chosen, group), field) == 8 * 2**20


@pytest.mark.parametrize("text", ["2GX", "iB", "-2GiB", "2 Gi i", "", "1e9 B"])
def test_what_is_no_size_is_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a size such as 512MiB"):
        load_settings(assignments=[f"memory.pool_bytes={text}"])


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (368640, "360 KiB"),
        (3 * 2**29, "1.5 GiB"),
        (2**44, "16 TiB"),
        (2**54, "16384 TiB"),
    ],
)
def test_a_size_is_shown_in_its_largest_unit(size_bytes: int, shown: str) -> None:
    assert in_units(size_bytes) == shown


def test_sizes_that_units_do_not_tell_apart_are_told_to_the_byte() -> None:
    assert apart(2**30 + 1, 2**30) == ("1073741825 B", "1073741824 B")
    assert apart(2**31, 2**30) == ("2 GiB", "1 GiB")
