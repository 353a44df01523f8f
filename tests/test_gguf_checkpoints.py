"""A GGUF file is served as the format and llama.cpp's loader mean it, or refused with the
reason. The reference is what transformers computes of the same weights."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from torch import Tensor, nn

from models.errors import ModelError
from models.gguf_config import from_gguf
from models.gguf_file import read_gguf
from models.load import load
from tests.answers import assert_same, in_transformers, one_thread, options
from tests.test_checkpoints import LINEAR, YARN
from tests.tiny_models import tiny_model, write_gguf
from tests.variants import Edit, draft, random_values, says

__all__ = ["one_thread"]

Metadata = Mapping[str, object]

LONGER = "llama.rope.scaling.original_context_length"
OLD_LINEAR = {"llama.rope.scale_linear": 4.0}
FACTOR = {"llama.rope.scaling.factor": 4.0}
TYPE = "llama.rope.scaling.type"
YARNED = {TYPE: "yarn", "llama.rope.scaling.factor": 8.0, LONGER: 32}


def one(name: str, *shape: int) -> dict[str, Tensor]:
    return {name: random_values(name, shape)}


SERVED: dict[str, tuple[str, list[Edit], Metadata, dict[str, Tensor]]] = {
    "linear rope by the old key": ("llama", [says(rope_scaling=LINEAR)], OLD_LINEAR, {}),
    "a factor without a type": ("llama", [says(rope_scaling=LINEAR)], FACTOR, {}),
    "a factor beside the old key": (
        "llama",
        [says(rope_scaling=LINEAR)],
        {**FACTOR, "llama.rope.scale_linear": 2.0},
        {},
    ),
    "linear by name": ("llama", [says(rope_scaling=LINEAR)], {**FACTOR, TYPE: "linear"}, {}),
    "a factor that counts for nothing": ("llama", [], {**FACTOR, TYPE: "none"}, {}),
    "a factor of 0": ("llama", [], {"llama.rope.scaling.factor": 0.0}, {}),
    "yarn": ("llama", [says(rope_scaling=YARN)], YARNED, {}),
    "yarn, the usual settings": (
        "llama",
        [says(rope_scaling=YARN)],
        {**YARNED, "llama.rope.scaling.yarn_beta_fast": 32.0},
        {},
    ),
    "llama3's factors": ("llama, llama3 rope", [], {}, {}),
    "biases of the MLP": ("llama, biases", [], {}, {}),
    "a bias of the head": ("qwen2", [], {}, one("output.bias", 96)),
    "head counts of each layer": ("qwen3", [], {"qwen3.attention.head_count_kv": [2, 2]}, {}),
    "rotary frequencies stored": ("llama", [], {}, one("blk.0.attn_rot_embd.weight", 8)),
    "a head that ranks": ("qwen3, tied", [], {}, one("cls.output.weight", 2, 64)),
}

REFUSED: dict[str, tuple[str, Metadata, dict[str, Tensor], str]] = {
    "more layers than any model has": ("llama", {"llama.block_count": 2**30}, {}, "damaged"),
    "tensors wider than any": ("llama", {"llama.feed_forward_length": 2**30}, {}, "damaged"),
    "a part": (
        "llama",
        {"split.count": 3, "split.no": 0},
        {},
        "is part 1 of 3 of a split model: merge the parts",
    ),
    "an adapter": ("llama", {"general.type": "adapter"}, {}, "general.type is 'adapter'"),
    "another name of a family": ("mistral", {}, {}, "'mistral' is not supported"),
    "experts": ("llama", {"llama.expert_count": 8}, {}, "llama.expert_count = 8"),
    "layers that draft": (
        "qwen3",
        {"qwen3.nextn_predict_layers": 1},
        {},
        "qwen3.nextn_predict_layers = 1",
    ),
    "attention both ways": (
        "llama",
        {"llama.attention.causal": False},
        {},
        "llama.attention.causal",
    ),
    "head counts that differ": (
        "llama",
        {"llama.attention.head_count_kv": [2, 4]},
        {},
        "head_count_kv is [2, 4]",
    ),
    "no epsilon": (
        "llama",
        {"llama.attention.layer_norm_rms_epsilon": None},
        {},
        "layer_norm_rms_epsilon",
    ),
    "longrope": ("llama", {TYPE: "longrope"}, {}, "'longrope' is not supported"),
    "longrope's factors": (
        "llama",
        {},
        one("rope_factors_long.weight", 8),
        "rope_factors_long.weight",
    ),
    "yarn, other settings": (
        "llama",
        {**YARNED, "llama.rope.scaling.yarn_log_multiplier": 0.1},
        {},
        "llama.rope.scaling.yarn_log_multiplier",
    ),
    "factors of another width": ("llama", {}, one("rope_freqs.weight", 4), "expected [8]"),
    "a layer more": ("llama", {}, one("blk.2.attn_norm.weight", 64), "blk.2.attn_norm.weight"),
    "norms of another family": (
        "llama",
        {},
        one("blk.1.attn_q_norm.weight", 16),
        "blk.1.attn_q_norm.weight",
    ),
    "attention sinks": (
        "llama",
        {},
        one("blk.1.attn_sinks.weight", 4),
        "blk.1.attn_sinks.weight",
    ),
    "a bias on one layer": (
        "llama",
        {},
        one("blk.1.ffn_down.bias", 64),
        "blk.1.ffn_down.bias",
    ),
    "a bias of a norm": ("llama", {}, one("output_norm.bias", 64), "output_norm.bias"),
    "a norm of the embedding": (
        "llama",
        {},
        one("token_embd_norm.weight", 64),
        "token_embd_norm.weight",
    ),
}


@pytest.mark.parametrize("name", SERVED)
def test_a_gguf_file_is_served_as_its_weights_are_meant(name: str, tmp_path: Path) -> None:
    kind, edits, metadata, tensors = SERVED[name]
    path = write_gguf(tiny_model(kind), tmp_path / "m.gguf", metadata=metadata, tensors=tensors)
    model = in_transformers(draft(kind, *edits).write(tmp_path / "hf"))
    if "output.bias" in tensors:
        model.lm_head.bias = nn.Parameter(tensors["output.bias"])
    assert_same(model, path)


@pytest.mark.parametrize("name", REFUSED)
def test_a_gguf_file_that_would_be_served_differently_is_refused(
    name: str, tmp_path: Path
) -> None:
    kind, metadata, tensors, words = REFUSED[name]
    path = write_gguf(tiny_model(kind), tmp_path / "m.gguf", metadata=metadata, tensors=tensors)
    assert words in refusal(path)


def test_a_gguf_file_with_a_tensor_twice_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tiny_model("llama"), tmp_path / "m.gguf")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"blk.1.ffn_norm.weight", b"blk.0.ffn_norm.weight"))
    assert "tensor blk.0.ffn_norm.weight is stored twice" in refusal(path)


def test_a_big_endian_gguf_file_is_named_so(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF\0\0\0\3" + bytes(40))
    assert "big-endian" in refusal(path)


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load(options(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_factor_divides_the_stored_factors_too(tmp_path: Path) -> None:
    model = tiny_model("llama, llama3 rope")
    plain = from_gguf(read_gguf(write_gguf(model, tmp_path / "a.gguf"))).rope.frequencies
    both = from_gguf(read_gguf(write_gguf(model, tmp_path / "b.gguf", metadata=FACTOR))).rope
    assert plain is not None
    assert both.frequencies == pytest.approx([frequency / 4 for frequency in plain])
