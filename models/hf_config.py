"""A decoder's config from a folder in Hugging Face's layout, as transformers resolves it: which
of two keys wins, what an absent one means and how rotary frequencies are scaled is for the
library to say.

transformers is imported where a folder is read. It takes a second, which GGUF files and the
front end do not pay.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from models.config import (
    ModelConfig,
    check_family,
    check_shape,
    eos_ids,
    read_json,
    refuse_soft_caps,
    temperature,
)
from models.errors import ModelError
from models.rope import Rope

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

SCALINGS = ("default", "linear", "llama3", "yarn")
_LAYER_TYPES = {"full_attention", "sliding_attention"}


def from_hf(folder: Path) -> ModelConfig:
    """Config of a folder; end-of-sequence ids also come from its `generation_config.json`, and
    the temperature. What the weights contradict is settled by `models.checkpoint`. ModelError
    names what is missing or unsupported."""
    path = folder / "config.json"
    raw = read_json(path)
    family = check_family(raw.get("model_type"))
    _refuse_unsupported(raw)
    resolved = _resolved(folder, path)
    values = _Values(resolved.to_dict(), path)
    hidden, heads = values.whole("hidden_size"), values.whole("num_attention_heads")
    head_dim = values.whole("head_dim", hidden // heads)
    # A flag counts where the family's code asks for it; others may carry it and mean nothing.
    attention_bias = family in ("llama", "qwen3") and values.switch("attention_bias")
    config = ModelConfig(
        family=family,
        vocab_size=values.whole("vocab_size"),
        hidden_size=hidden,
        intermediate_size=values.whole("intermediate_size"),
        num_layers=values.whole("num_hidden_layers"),
        num_q_heads=heads,
        num_kv_heads=values.whole("num_key_value_heads"),
        head_dim=head_dim,
        norm_eps=values.real("rms_norm_eps"),
        rope=_rope(resolved, values),
        context_tokens=values.whole("max_position_embeddings"),
        window=_window(values),
        qkv_bias=attention_bias or family == "qwen2",
        output_bias=attention_bias,
        qk_norm=family == "qwen3",
        tied=values.switch("tie_word_embeddings"),
        eos_ids=eos_ids(raw, folder) or eos_ids(values.resolved, folder),
        temperature=temperature(folder),
        mlp_bias=family == "llama" and values.switch("mlp_bias"),
    )
    check_shape(config)
    return config


def _resolved(folder: Path, path: Path) -> "PreTrainedConfig":
    from transformers import AutoConfig
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # its warnings are lines of their own, between ours
    try:
        resolved: PreTrainedConfig = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # a wrong value can raise anything in the library
        raise ModelError(f"{path}: transformers refuses it: {_line(error)}") from error
    finally:
        logging.set_verbosity(verbosity)
    return resolved


def _line(error: Exception) -> str:
    said = error.args[0] if isinstance(error, KeyError) else error
    return " ".join(f"{type(error).__name__}: {said}".split())


@dataclass(frozen=True, slots=True)
class _Values:
    resolved: Mapping[str, object]
    path: Path

    def whole(self, name: str, default: int | None = None) -> int:
        value = self.resolved.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelError(f"{self.path}: {name} is {value!r}, not a positive number")
        return value

    def real(self, name: str) -> float:
        value = self.resolved.get(name)
        if not isinstance(value, int | float):
            raise ModelError(f"{self.path}: {name} is {value!r}, not a number")
        return float(value)

    def switch(self, name: str) -> bool:
        return bool(self.resolved.get(name))


def _window(values: _Values) -> int | None:
    """Reach of the layers that slide, if one does. A Llama's layers do not, but transformers
    then keeps no more than the window of its keys: what is generated depends on it."""
    window, types = values.resolved.get("sliding_window"), values.resolved.get("layer_types")
    if isinstance(types, list):
        unknown = sorted(set(types) - _LAYER_TYPES)
        if unknown:
            raise ModelError(f"layers of {', '.join(unknown)} (layer_types) are not supported")
        if "sliding_attention" not in types:
            return None
        return values.whole("sliding_window")
    return window if isinstance(window, int) else None


def _refuse_unsupported(raw: Mapping[str, object]) -> None:
    refuse_soft_caps(raw)
    if raw.get("hidden_act", "silu") not in ("silu", "swish"):
        raise ModelError(f"activation {raw['hidden_act']!r} is not supported (supported: silu)")
    if raw.get("quantization_config"):
        raise ModelError(
            "quantised safetensors (quantization_config) are not supported; "
            "supported: float32, float16 and bfloat16 safetensors, or a GGUF file"
        )
    if raw.get("is_causal") is False:
        raise ModelError("attention in both directions (is_causal false) is not supported")
    for name in ("per_layer_config", "transformers_weights"):
        if raw.get(name) is not None:
            raise ModelError(f"{name} in a config is not supported")


def _rope(resolved: "PreTrainedConfig", values: _Values) -> Rope:
    found = values.resolved.get("rope_parameters")
    parameters: Mapping[str, object] = found if isinstance(found, Mapping) else {}
    kind, theta = parameters.get("rope_type"), parameters.get("rope_theta")
    if kind is None:
        raise ModelError(f"{values.path}: rope_parameters of each layer are not supported")
    if kind not in SCALINGS:
        raise ModelError(
            f"rope scaling {kind!r} is not supported (supported: {', '.join(SCALINGS)})"
        )
    if parameters.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError("partial rotary embedding is not supported")
    if not isinstance(theta, int | float):
        raise ModelError(f"{values.path}: rope_theta is {theta!r}, not a number")
    if kind == "default":
        return Rope(float(theta))
    try:
        return _scaled(resolved)
    except Exception as error:  # as above
        raise ModelError(f"{values.path}: rope scaling {kind!r}: {_line(error)}") from error


def yarn(theta: float, head_dim: int, factor: float, original_tokens: int) -> Rope:
    """YaRN as transformers computes it, for a model whose context was `original_tokens`."""
    from transformers import LlamaConfig

    parameters = {
        "rope_type": "yarn",
        "rope_theta": theta,
        "factor": factor,
        "original_max_position_embeddings": original_tokens,
    }
    return _scaled(LlamaConfig(head_dim=head_dim, rope_parameters=parameters))


def _scaled(resolved: "PreTrainedConfig") -> Rope:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    parameters = resolved.rope_parameters
    kind, theta, factor = (parameters[name] for name in ("rope_type", "rope_theta", "factor"))
    frequencies, scale = ROPE_INIT_FUNCTIONS[kind](resolved)
    name = kind if factor is None else f"{kind}, factor {factor:g}"
    return Rope(float(theta), tuple(frequencies.tolist()), float(scale), name)
