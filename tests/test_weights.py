"""Reading model files: what is found in them, and one clear line for what is wrong."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file

from models.config import limit_context
from models.errors import ModelError
from models.gguf_config import from_gguf
from models.gguf_file import read_gguf
from models.gguf_weights import GgufWeights, gguf_name
from models.hf_config import from_hf
from models.layers import LayerReader
from models.linear import cpu_kernel
from models.source import model_path
from models.weights import SafetensorsFolder
from tests.tiny_models import saved, tiny_model, write_gguf


@pytest.fixture
def llama_folder(tmp_path: Path) -> Path:
    return saved(tiny_model("llama"), tmp_path / "llama")


def change(folder: Path, **values: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return folder


def read(folder: Path) -> None:
    config = limit_context(from_hf(folder), None)
    kernel, _ = cpu_kernel(torch.float32)
    LayerReader(config, SafetensorsFolder(folder), torch.float32, kernel).decoder()


def one_line(folder: Path) -> str:
    """What is said of a folder that cannot be served."""
    with pytest.raises(ModelError) as caught:
        read(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_sharded_folder_reads_like_a_single_file(tmp_path: Path) -> None:
    model = tiny_model("llama")
    whole = saved(model, tmp_path / "whole")
    shards = saved(model, tmp_path / "shards", shard_bytes=60_000)
    assert len(list(shards.glob("*.safetensors"))) > 2
    shape = (96, 64)
    for folder in (whole, shards):
        tensor = SafetensorsFolder(folder).tensor("lm_head.weight", shape)
        assert torch.equal(tensor, model.lm_head.weight)
    (shards / "model.safetensors.index.json").unlink()
    assert torch.equal(SafetensorsFolder(shards).tensor("lm_head.weight", shape), tensor)


def test_an_unknown_architecture_is_named_with_what_is_supported(llama_folder: Path) -> None:
    said = one_line(change(llama_folder, model_type="mamba"))
    assert "'mamba'" in said
    assert "llama, mistral, qwen2, qwen3" in said


def test_a_sliding_window_is_refused_unless_the_context_fits_into_it(tmp_path: Path) -> None:
    folder = change(saved(tiny_model("mistral"), tmp_path / "m"), sliding_window=100)
    said = one_line(folder)
    assert "100" in said
    assert "256" in said
    assert limit_context(from_hf(folder), 100).context_tokens == 100


def test_a_window_in_a_gguf_file_is_refused_too(tmp_path: Path) -> None:
    file = read_gguf(write_gguf(tiny_model("llama"), tmp_path / "m.gguf"))
    metadata = {**file.metadata, "llama.attention.sliding_window": 100}
    config = from_gguf(replace(file, metadata=metadata))
    with pytest.raises(ModelError, match=r"window 100 is smaller than the context 256"):
        limit_context(config, None)
    assert limit_context(config, 100).context_tokens == 100


@pytest.mark.parametrize("key", ["attn_logit_softcapping", "final_logit_softcapping"])
def test_logits_with_a_soft_cap_are_refused(
    key: str, llama_folder: Path, tmp_path: Path
) -> None:
    from_hf(change(llama_folder, **{key: None}))
    said = one_line(change(llama_folder, **{key: 30.0}))
    assert said == f"soft-capped logits ({key} = 30.0) are not supported"
    file = read_gguf(write_gguf(tiny_model("llama"), tmp_path / "m.gguf"))
    metadata = {**file.metadata, f"llama.{key}": 30.0}
    with pytest.raises(ModelError, match=rf"llama\.{key} = 30"):
        from_gguf(replace(file, metadata=metadata))


def test_a_missing_tensor_is_named(llama_folder: Path) -> None:
    path = llama_folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, path)
    assert one_line(llama_folder) == "tensor model.layers.1.mlp.up_proj.weight is missing"


def test_a_wrong_shape_is_named(llama_folder: Path) -> None:
    said = one_line(change(llama_folder, intermediate_size=161))
    assert said == (
        "tensor model.layers.0.mlp.gate_proj.weight has shape [160, 64], expected [161, 64]"
    )


def test_pickles_are_not_read(llama_folder: Path) -> None:
    (llama_folder / "model.safetensors").rename(llama_folder / "pytorch_model.bin")
    assert "no *.safetensors" in one_line(llama_folder)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_broken_config_is_one_line(llama_folder: Path, text: str) -> None:
    (llama_folder / "config.json").write_text(text)
    assert "config.json" in one_line(llama_folder)


def test_a_cut_safetensors_file_is_one_line(llama_folder: Path) -> None:
    path = llama_folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    assert "model.safetensors" in one_line(llama_folder)


def test_end_of_sequence_ids_come_from_both_files(llama_folder: Path) -> None:
    change(llama_folder, eos_token_id=3)
    (llama_folder / "generation_config.json").write_text('{"eos_token_id": [5, 3]}')
    assert from_hf(llama_folder).eos_ids == (5, 3)


@pytest.mark.parametrize(
    "kind", ["llama", "llama, tied", "llama, llama3 rope", "qwen2", "qwen3, tied"]
)
def test_a_gguf_file_holds_the_same_model(kind: str, tmp_path: Path) -> None:
    model = tiny_model(kind)
    expected = from_hf(saved(model, tmp_path / "hf"))
    file = read_gguf(write_gguf(model, tmp_path / "m.gguf"))
    config = from_gguf(file)
    assert config.rope.theta == expected.rope.theta
    if expected.rope.frequencies is not None:
        assert config.rope.frequencies == pytest.approx(expected.rope.frequencies)
    for name in ("family", "head_dim", "norm_eps", "tied", "qkv_bias", "qk_norm", "eos_ids"):
        assert getattr(config, name) == getattr(expected, name), name
    source = GgufWeights(file, config)
    for name, parameter in model.named_parameters():
        assert torch.equal(source.tensor(name, tuple(parameter.shape)), parameter), name


def test_quantised_tensors_are_dequantised(tmp_path: Path) -> None:
    model = tiny_model("qwen2")
    file = read_gguf(write_gguf(model, tmp_path / "m.gguf", gguf.GGMLQuantizationType.Q8_0))
    weight = model.model.layers[0].mlp.up_proj.weight
    found = GgufWeights(file, from_gguf(file)).tensor(
        "model.layers.0.mlp.up_proj.weight", tuple(weight.shape)
    )
    torch.testing.assert_close(found, weight.detach(), atol=0.01, rtol=0)


def test_the_header_reader_agrees_with_the_gguf_package(tmp_path: Path) -> None:
    path = write_gguf(tiny_model("llama"), tmp_path / "m.gguf")
    ours, theirs = read_gguf(path), gguf.GGUFReader(path)
    for name, value in ours.metadata.items():
        assert theirs.fields[name].contents() == value, name
    for tensor in theirs.tensors:
        stored = ours.tensors[tensor.name]
        assert stored.offset == tensor.data_offset
        assert stored.shape == tuple(reversed(tensor.shape.tolist()))
        assert stored.kind == tensor.tensor_type


@pytest.mark.parametrize("keep", [0, 3, 4, 30, 700])
def test_a_damaged_gguf_file_is_one_line(tmp_path: Path, keep: int) -> None:
    path = write_gguf(tiny_model("llama"), tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"m\.gguf") as caught:
        read_gguf(path)
    assert "\n" not in str(caught.value)


def test_a_gguf_file_that_ends_inside_a_tensor_is_one_line(tmp_path: Path) -> None:
    path = write_gguf(tiny_model("llama"), tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:-1000])
    file = read_gguf(path)
    name = max(file.tensors, key=lambda name: file.tensors[name].offset)
    last = {gguf_name(n): n for n, _ in tiny_model("llama").named_parameters()}[name]
    with pytest.raises(ModelError, match=rf"{last} of m\.gguf .*ends inside it"):
        GgufWeights(file, from_gguf(file)).tensor(last, file.tensors[name].shape)


@pytest.mark.parametrize("shape", [(2**40, 64), (64,), ()])
def test_a_gguf_tensor_of_a_damaged_shape_is_not_read(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    file = read_gguf(write_gguf(tiny_model("llama"), tmp_path / "m.gguf"))
    config, name = from_gguf(file), "blk.0.ffn_up.weight"
    damaged = {**file.tensors, name: replace(file.tensors[name], shape=shape)}
    with pytest.raises(ModelError, match=r"up_proj.weight has shape .*, expected \[160, 64\]"):
        GgufWeights(replace(file, tensors=damaged), config).tensor(
            "model.layers.0.mlp.up_proj.weight", (160, 64)
        )


def test_a_gguf_file_without_an_embedding_is_one_line(tmp_path: Path) -> None:
    file = read_gguf(write_gguf(tiny_model("llama"), tmp_path / "m.gguf"))
    rest = {name: t for name, t in file.tensors.items() if name != "token_embd.weight"}
    with pytest.raises(ModelError, match=r"m\.gguf has no tensor token_embd\.weight"):
        from_gguf(replace(file, tensors=rest))


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "~")
    with pytest.raises(ModelError, match="XDG_CACHE_HOME"):
        model_path("default")


def test_a_gguf_file_that_claims_endless_metadata_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 2**60) + b"\0" * 8)
    with pytest.raises(ModelError, match="damaged"):
        read_gguf(path)


def test_gguf_names_follow_the_layers() -> None:
    assert gguf_name("model.layers.12.self_attn.k_proj.bias") == "blk.12.attn_k.bias"
    assert gguf_name("lm_head.weight") == "output.weight"


@pytest.mark.parametrize(
    ("source", "said"),
    [("no-such-model", "no model at"), ("empty", "no config.json"), ("a.bin", "not a .gguf")],
)
def test_a_bad_source_is_one_line(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.bin").touch()
    with pytest.raises(ModelError, match=said):
        model_path(source)
