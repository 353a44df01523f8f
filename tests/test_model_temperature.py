"""The temperature of requests that name none is the model's, and reaches the front end."""

from pathlib import Path

import pytest

from models.errors import ModelError
from models.gguf_config import from_gguf
from models.gguf_file import read_gguf
from models.hf_config import from_hf
from service.build import build
from tests.tiny_models import saved, tiny_model, write_gguf
from tests.wire import make_settings


def model(path: Path, generation: str | None) -> Path:
    """A tiny model's folder with that `generation_config.json`, or none."""
    folder = saved(tiny_model("llama"), path / "m")
    file = folder / "generation_config.json"
    file.unlink()
    if generation is not None:
        file.write_text(generation)
    return folder


@pytest.mark.parametrize(
    ("generation", "temperature"),
    [
        (None, 1.0),
        ("{}", 1.0),
        ('{"temperature": null}', 1.0),
        ('{"temperature": 0.6}', 0.6),
        ('{"temperature": 0}', 0.0),
        ('{"temperature": 10}', 10.0),
    ],
)
def test_the_front_end_learns_the_temperature_that_the_folder_names(
    tmp_path: Path, generation: str | None, temperature: float
) -> None:
    folder = model(tmp_path, generation)
    assert from_hf(folder).temperature == temperature
    settings = make_settings(model={"source": str(folder)}, memory={"num_pages": 8})
    assert build(settings).ready.temperature == temperature


@pytest.mark.parametrize("value", ["-0.1", "10.5", "NaN", "1e999", "true", '"0.6"', "[0.6]"])
def test_a_temperature_that_is_none_is_one_line(tmp_path: Path, value: str) -> None:
    folder = model(tmp_path, f'{{"temperature": {value}}}')
    with pytest.raises(ModelError) as caught:
        from_hf(folder)
    for words in ("generation_config.json: temperature is ", "not a number from 0 to 10"):
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_gguf_file_names_none(tmp_path: Path) -> None:
    path = write_gguf(tiny_model("llama"), tmp_path / "m.gguf")
    assert from_gguf(read_gguf(path)).temperature == 1.0
