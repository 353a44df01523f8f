"""A checkpoint is served as its authors meant it, or refused with the reason.

The reference is what transformers computes of the same folder. The next variant is a line.
"""

from pathlib import Path

import pytest
import torch
from structlog.testing import capture_logs

from models.errors import ModelError
from models.hf_config import from_hf
from models.load import load
from service.build import build
from tests.answers import assert_same, in_transformers, one_thread, options
from tests.tiny_models import LLAMA3
from tests.variants import (
    SHARDS,
    Draft,
    Edit,
    beside,
    beside_older_shards,
    draft,
    found_twice,
    head_alone,
    head_beside_embedding,
    in_shards,
    indexed,
    lacks,
    renamed,
    says,
    stored,
    stored_as,
    without,
)
from tests.wire import serving

__all__ = ["one_thread"]

LINEAR = {"type": "linear", "factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
Q_BIAS = "model.layers.0.self_attn.q_proj.bias"

SERVED: dict[str, tuple[str, list[Edit]]] = {
    # Two places say different things.
    "rope_scaling beside rope_parameters": ("llama", [says(rope_scaling=YARN)]),
    "linear rope_scaling beside rope_parameters": ("qwen2", [says(rope_scaling=LINEAR)]),
    "rope_scaling alone": ("mistral", [lacks("rope_parameters"), says(rope_scaling=LINEAR)]),
    "rope_theta at the top too": ("llama", [says(rope_theta=500.0)]),
    "rope_theta at the top alone": ("qwen3", [lacks("rope_parameters"), says(rope_theta=5e2)]),
    "rope_theta in rope_scaling": (
        "llama",
        [
            lacks("rope_parameters"),
            says(rope_theta=50.0, rope_scaling={**LINEAR, "rope_theta": 500.0}),
        ],
    ),
    "no rope at all": ("llama", [lacks("rope_parameters")]),
    "rope_type and type": ("llama", [says(rope_scaling={**YARN, "type": "linear"})]),
    "llama3": ("llama", [says(rope_parameters=LLAMA3)]),
    "llama3, original context at the top": (
        "llama",
        [says(rope_parameters=LLAMA3, original_max_position_embeddings=16)],
    ),
    "yarn": ("qwen2", [says(rope_parameters={**PLAIN, **YARN})]),
    "yarn, attention factor": ("llama", [says(rope_scaling={**YARN, "attention_factor": 0.7})]),
    "yarn, mscale": (
        "llama",
        [says(rope_scaling={**YARN, "mscale": 0.8, "mscale_all_dim": 0.4})],
    ),
    "yarn, betas": (
        "qwen3",
        [says(rope_scaling={**YARN, "beta_fast": 8, "beta_slow": 2, "truncate": False})],
    ),
    "yarn, no original context": (
        "llama",
        [says(rope_scaling={"rope_type": "yarn", "factor": 2.0})],
    ),
    "yarn, factor null": ("qwen2", [says(rope_scaling={**YARN, "factor": None})]),
    "partial rotary factor of 1": ("llama", [says(partial_rotary_factor=1.0)]),
    # A flag and the tensors.
    "tied, another head stored": ("llama, tied", [stored("lm_head.weight", 96, 64)]),
    "tied, the same head stored": ("llama, tied", [head_beside_embedding]),
    "tied, the same head stored in another dtype": (
        "llama, tied",
        [
            stored_as(torch.bfloat16),
            head_beside_embedding,
            stored_as(torch.float32, "lm_head.weight"),
        ],
    ),
    "tied, the head alone": ("qwen3, tied", [head_alone]),
    "tie flag absent, no head": ("llama", [lacks("tie_word_embeddings")]),
    "qwen2, attention_bias false": ("qwen2", [says(attention_bias=False)]),
    "mistral, attention_bias true": ("mistral", [says(attention_bias=True)]),
    "llama, mlp_bias": ("llama, biases", []),
    "qwen2, mlp_bias true": ("qwen2", [says(mlp_bias=True)]),
    "qwen3, biases": ("qwen3, biases", []),
    # Several sets of weights.
    "a single file beside old shards": ("llama", [beside_older_shards]),
    "consolidated weights beside": ("llama", [beside("consolidated.safetensors")]),
    "consolidated weights beside shards": (
        "llama",
        [indexed, lambda made: made.files.update(consolidated_of(made))],
    ),
    "shards": ("llama", [indexed]),
    "shards without an index": ("llama", [in_shards]),
    "an index that names the wrong file": (
        "llama",
        [indexed, lambda made: swap_files(made)],
    ),
    # Names.
    "names without model.": ("llama", [renamed(r"^model\.", "")]),
    "tied names without model.": ("qwen3, tied", [renamed(r"^model\.", "")]),
    "names with model. twice": ("qwen2", [renamed("^", "model.")]),
    # Tensors that nobody reads, and do no harm.
    "rotary frequencies stored": (
        "llama",
        [stored("model.layers.0.self_attn.rotary_emb.inv_freq", 8)],
    ),
    "a value head stored": ("llama", [stored("v_head.summary.weight", 1, 64)]),
    # Windows.
    "a window that no layer has": (
        "qwen2",
        [
            lacks("layer_types"),
            says(use_sliding_window=True, sliding_window=8, max_window_layers=2),
        ],
    ),
    "a window, full layers alone": (
        "qwen3",
        [
            says(
                use_sliding_window=True,
                sliding_window=8,
                layer_types=["full_attention"] * 2,
            )
        ],
    ),
    "a window that is turned off": (
        "qwen2",
        [lacks("layer_types"), says(use_sliding_window=False, sliding_window=8)],
    ),
    "a window of the whole context": ("mistral", [says(sliding_window=256)]),
    "mistral, default window": ("mistral", [lacks("sliding_window")]),
    "mistral, full layers alone": (
        "mistral",
        [says(sliding_window=8, layer_types=["full_attention"] * 2)],
    ),
    "llama, a window of the whole context": ("llama", [says(sliding_window=256)]),
    # Values that are absent, null or old.
    "llama, no head_dim": ("llama", [lacks("head_dim")]),
    "llama, head_dim null": ("llama", [says(head_dim=None)]),
    "qwen2, no head_dim": ("qwen2", [lacks("head_dim")]),
    "qwen3, no head_dim": ("qwen3, wide heads", [lacks("head_dim")]),
    "no num_key_value_heads": ("llama, no groups", [lacks("num_key_value_heads")]),
    "num_key_value_heads null": ("qwen2, no groups", [says(num_key_value_heads=None)]),
    "mistral, no num_key_value_heads": (
        "mistral, eight heads",
        [lacks("num_key_value_heads")],
    ),
    "no rms_norm_eps": ("llama", [lacks("rms_norm_eps")]),
    "another rms_norm_eps": ("llama", [says(rms_norm_eps=0.1)]),
    "torch_dtype": ("llama", [says(torch_dtype="float16"), stored_as(torch.float16)]),
    "bf16 weights": ("qwen3", [stored_as(torch.bfloat16)]),
    "a context that just fits": ("llama", [says(max_position_embeddings=80)]),
    "hidden_act swish": ("llama", [says(hidden_act="swish")]),
    "custom code named, and not run": (
        "llama",
        [says(auto_map={"AutoConfig": "made.up--c.Config"})],
    ),
}

REFUSED: dict[str, tuple[str, list[Edit], str]] = {
    "a tensor in two files": ("llama", [found_twice], "lm_head.weight is stored twice"),
    "a tensor in two indexed files": (
        "llama",
        [indexed, found_twice],
        "lm_head.weight is stored twice",
    ),
    "a tensor under two names": (
        "llama",
        [stored("norm.weight", 64)],
        "model.norm.weight is stored twice",
    ),
    "biases that the config turns off": ("llama", [stored(Q_BIAS, 64)], Q_BIAS),
    "a bias of the head": ("llama", [stored("lm_head.bias", 96)], "lm_head.bias"),
    "norms of another family": (
        "llama",
        [stored("model.layers.1.self_attn.q_norm.weight", 16)],
        "model.layers.1.self_attn.q_norm.weight",
    ),
    "a bias of a norm": ("llama", [stored("model.norm.bias", 64)], "model.norm.bias"),
    "a norm of the embedding": (
        "llama",
        [stored("model.embed_layernorm.weight", 64)],
        "embed_layernorm",
    ),
    "attention sinks": (
        "llama",
        [stored("model.layers.1.self_attn.sinks", 4)],
        "model.layers.1.self_attn.sinks",
    ),
    "a layer more": (
        "llama",
        [says(num_hidden_layers=1)],
        "model.layers.1.input_layernorm.weight",
    ),
    "scales beside weights": (
        "llama",
        [stored("model.layers.0.mlp.up_proj.weight_scale", 1)],
        "weight_scale",
    ),
    "an adapter's parts": (
        "llama",
        [stored("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", 4, 64)],
        "lora_A",
    ),
    "an adapter beside": (
        "llama",
        [lambda made: made.others.update({"adapter_config.json": {}})],
        "adapter_config.json",
    ),
    "no head, not tied": (
        "llama",
        [without("lm_head.weight")],
        "lm_head.weight is missing (tie_word_embeddings is false)",
    ),
    "llama, a window": ("llama", [says(sliding_window=8)], "window 8 is smaller"),
    "a window": ("mistral", [says(sliding_window=8)], "window 8 is smaller"),
    "a window on one layer": (
        "qwen2",
        [
            lacks("layer_types"),
            says(use_sliding_window=True, sliding_window=8, max_window_layers=1),
        ],
        "window 8 is smaller",
    ),
    "mistral, a window on one layer": (
        "mistral",
        [says(sliding_window=8, layer_types=["full_attention", "sliding_attention"])],
        "window 8 is smaller",
    ),
    "sliding layers, no window": (
        "qwen2",
        [says(use_sliding_window=False, layer_types=["sliding_attention"] * 2)],
        "sliding_window",
    ),
    "layers of another kind": (
        "qwen3",
        [says(layer_types=["linear_attention", "full_attention"])],
        "linear_attention",
    ),
    "too few layer types": ("qwen2", [says(layer_types=["full_attention"])], "layer_types"),
    "dynamic rope": (
        "llama",
        [says(rope_scaling={"type": "dynamic", "factor": 2.0})],
        "'dynamic'",
    ),
    "longrope": (
        "llama",
        [
            says(
                rope_scaling={
                    "type": "longrope",
                    "short_factor": [1.0] * 8,
                    "long_factor": [2.0] * 8,
                }
            )
        ],
        "'longrope'",
    ),
    "rope of an unknown type": (
        "llama",
        [says(rope_scaling={"type": "spiral"})],
        "'spiral' is not supported (supported: default, linear, llama3, yarn)",
    ),
    "rope by layer": (
        "qwen2",
        [says(rope_parameters={"full_attention": PLAIN, "sliding_attention": PLAIN})],
        "rope_parameters",
    ),
    "rope without a factor": ("llama", [says(rope_scaling={"type": "linear"})], "factor"),
    "rope_theta null": ("llama", [says(rope_parameters=None, rope_theta=None)], "rope_theta"),
    "half of a head rotated": (
        "llama",
        [says(rope_parameters={**PLAIN, "partial_rotary_factor": 0.5})],
        "partial rotary",
    ),
    "half of a head rotated, at the top": (
        "llama",
        [says(partial_rotary_factor=0.5)],
        "partial rotary",
    ),
    "layers that differ": ("llama", [says(per_layer_config={"0": {}})], "per_layer_config"),
    "attention both ways": ("llama", [says(is_causal=False)], "is_causal"),
    "another activation": ("llama", [says(hidden_act="gelu")], "'gelu'"),
    "quantised": ("llama", [says(quantization_config={"bits": 4})], "quantization_config"),
    "a size that is no number": ("llama", [says(hidden_size="64")], "hidden_size"),
    "no heads": ("llama", [says(num_attention_heads=0)], "transformers refuses it: ZeroDiv"),
    "a vocabulary smaller than the embedding": (
        "llama",
        [says(vocab_size=90)],
        "has shape [96, 64], expected [90, 64]",
    ),
    "weights named elsewhere": (
        "llama",
        [says(transformers_weights="other.safetensors")],
        "transformers_weights",
    ),
    "a pointer in place of weights": (
        "llama",
        [lambda made: made.others.update({"model.safetensors": POINTER})],
        "it is a pointer of Git LFS",
    ),
    "a shard that is missing": (
        "llama",
        [indexed, lambda made: made.files.pop(SHARDS[1])],
        SHARDS[1],
    ),
}


def consolidated_of(made: Draft) -> dict[str, dict[str, torch.Tensor]]:
    return {"consolidated.safetensors": {n: 2 * t for n, t in made.tensors.items()}}


def swap_files(made: Draft) -> None:
    index = made.others["model.safetensors.index.json"]
    names = index["weight_map"]
    for name, file in names.items():
        names[name] = SHARDS[file == SHARDS[0]]


@pytest.mark.parametrize("name", SERVED)
def test_a_folder_is_served_as_transformers_computes_it(name: str, tmp_path: Path) -> None:
    kind, edits = SERVED[name]
    made = draft(kind, *edits)
    folder = made.write(tmp_path / "m")
    if edits == [in_shards]:  # transformers wants an index
        made.files.clear()
        assert_same(in_transformers(made.write(tmp_path / "whole")), folder)
    else:
        assert_same(in_transformers(folder), folder)


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_that_would_be_served_differently_is_refused(
    name: str, tmp_path: Path
) -> None:
    kind, edits, words = REFUSED[name]
    folder = draft(kind, *edits).write(tmp_path / "m")
    with pytest.raises(ModelError) as caught:
        load(options(folder))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "generation", "ids"),
    [
        ({}, None, (2,)),
        ({"eos_token_id": None}, None, ()),
        ({}, {"eos_token_id": [5, 3]}, (5, 3)),
        ({"eos_token_id": 3}, {}, (3,)),
    ],
)
def test_a_config_without_an_end_has_its_family_s(
    config: dict[str, object],
    generation: dict[str, object] | None,
    ids: tuple[int, ...],
    tmp_path: Path,
) -> None:
    made = draft("llama", lacks("eos_token_id"), says(**config))
    if generation is not None:
        made.others["generation_config.json"] = generation
    assert from_hf(made.write(tmp_path / "m")).eos_ids == ids


async def test_a_start_says_what_was_loaded_and_names_what_was_not_used(tmp_path: Path) -> None:
    folder = draft(
        "llama, tied",
        says(rope_scaling=YARN),
        stored("model.layers.0.self_attn.rotary_emb.inv_freq", 8),
        stored("model.layers.1.self_attn.rotary_emb.inv_freq", 8),
        beside("consolidated.safetensors"),
    ).write(tmp_path / "m")
    with capture_logs() as logs:
        async with serving(build, model={"source": str(folder)}):
            pass
    loaded, unused = (
        next(line for line in logs if line["event"] == event)
        for event in ("model_loaded", "tensors_not_used")
    )
    names = ["model.layers.*.self_attn.rotary_emb.inv_freq", "consolidated.safetensors"]
    assert loaded == {
        "event": "model_loaded",
        "log_level": "info",
        "family": "llama",
        "tensors": 20,
        "unused_tensors": 2,
        "head": "the embedding",
        "rope": "yarn, factor 8, theta 10000",
        "window": None,
        "tokenizer": "bytes",
        "end_tokens": [1],
    }
    assert (unused["log_level"], unused["names"]) == ("warning", names)
