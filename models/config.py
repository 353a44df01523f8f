"""What distinguishes one Llama-family decoder from another, as plain values.

`from_hf` reads a `config.json`; `models.gguf_config` reads the metadata of a GGUF file.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from models.errors import ModelError
from models.rope import Rope, llama3_divisors

SUPPORTED = ("llama", "mistral", "qwen2", "qwen3")
MAX_TEMPERATURE = 10
_GENERATION = "generation_config.json"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape and switches of a decoder. `family` is one of `SUPPORTED`; `window` is the
    reach of its attention where that is limited (tokens); `temperature` is for requests
    that name none."""

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope: Rope
    context_tokens: int
    window: int | None
    qkv_bias: bool
    output_bias: bool
    qk_norm: bool
    tied: bool
    eos_ids: tuple[int, ...]
    temperature: float = 1.0


def read_json(path: Path) -> dict[str, object]:
    """A JSON object from a file; ModelError names the file otherwise."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds no JSON object")
    return value


def from_hf(folder: Path) -> ModelConfig:
    """Config of a folder in Hugging Face's layout; end-of-sequence ids also come from its
    `generation_config.json`, and the temperature. ModelError names what is missing or
    unsupported."""
    raw = read_json(folder / "config.json")
    family = check_family(raw.get("model_type"))
    values = _Values(raw, folder / "config.json")
    hidden, heads = values.whole("hidden_size"), values.whole("num_attention_heads")
    head_dim = values.whole("head_dim", 128 if family == "qwen3" else hidden // heads)
    _refuse_unsupported(raw)
    attention_bias = values.switch("attention_bias", family == "qwen2")
    config = ModelConfig(
        family=family,
        vocab_size=values.whole("vocab_size"),
        hidden_size=hidden,
        intermediate_size=values.whole("intermediate_size"),
        num_layers=values.whole("num_hidden_layers"),
        num_q_heads=heads,
        num_kv_heads=values.whole("num_key_value_heads", heads),
        head_dim=head_dim,
        norm_eps=values.real("rms_norm_eps", 1e-6),
        rope=_rope(raw, head_dim),
        context_tokens=values.whole("max_position_embeddings"),
        window=_window(raw, family),
        qkv_bias=attention_bias,
        output_bias=attention_bias and family != "qwen2",
        qk_norm=family == "qwen3",
        tied=values.switch("tie_word_embeddings", False),
        eos_ids=eos_ids(raw, folder),
        temperature=_temperature(folder),
    )
    check_shape(config)
    return config


def check_family(name: object) -> str:
    """The architecture's name, or ModelError naming those that are supported."""
    if not isinstance(name, str) or name not in SUPPORTED:
        raise ModelError(
            f"architecture {name!r} is not supported (supported: {', '.join(SUPPORTED)})"
        )
    return name


def check_shape(config: ModelConfig) -> None:
    """ModelError where heads cannot be grouped or dimensions cannot be rotated."""
    if config.num_kv_heads < 1 or config.num_q_heads % config.num_kv_heads:
        raise ModelError(
            f"{config.num_q_heads} query heads are no multiple of "
            f"{config.num_kv_heads} key-value heads"
        )
    if config.head_dim < 2 or config.head_dim % 2:
        raise ModelError(f"head_dim {config.head_dim} is not an even number")


def refuse_soft_caps(values: Mapping[str, object], prefix: str = "") -> None:
    """ModelError where a file has one: no attention kernel and no head here knows of them."""
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if values.get(prefix + name):
            raise ModelError(
                f"soft-capped logits ({prefix}{name} = {values[prefix + name]}) are not "
                "supported"
            )


def refuse_sinks(tensors: Iterable[str]) -> None:
    """ModelError where one of the tensors is of attention sinks, which are not supported
    either: what is not read would be left out of every softmax."""
    for name in tensors:
        if name.endswith(("self_attn.sinks", "attn_sinks.weight")):
            raise ModelError(f"attention sinks (tensor {name}) are not supported")


def limit_context(config: ModelConfig, max_context_tokens: int | None) -> ModelConfig:
    """The config with at most that context. ModelError where attention would have to slide,
    which is not supported: the window must cover the context."""
    context = min(config.context_tokens, max_context_tokens or config.context_tokens)
    if config.window is not None and config.window < context:
        raise ModelError(
            f"sliding-window attention is not supported: window {config.window} is smaller "
            f"than the context {context} (lower model.max_context_tokens to the window)"
        )
    return replace(config, context_tokens=context)


@dataclass(frozen=True, slots=True)
class _Values:
    raw: Mapping[str, object]
    path: Path

    def whole(self, name: str, default: int | None = None) -> int:
        value = self.raw.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelError(f"{self.path}: {name} is {value!r}, not a positive number")
        return value

    def real(self, name: str, default: float) -> float:
        value = self.raw.get(name, default)
        if not isinstance(value, int | float):
            raise ModelError(f"{self.path}: {name} is {value!r}, not a number")
        return float(value)

    def switch(self, name: str, default: bool) -> bool:
        value = self.raw.get(name)
        return default if value is None else bool(value)


def _window(raw: Mapping[str, object], family: str) -> int | None:
    # A Mistral file without the key means 4096; Qwen files carry a window that another
    # key turns off; Llama has none.
    if family == "mistral":
        window = raw.get("sliding_window", 4096)
    else:
        window = raw.get("sliding_window") if raw.get("use_sliding_window") else None
    return window if isinstance(window, int) else None


def _refuse_unsupported(raw: Mapping[str, object]) -> None:
    refuse_soft_caps(raw)
    if raw.get("mlp_bias"):
        raise ModelError("biases in the MLP (mlp_bias) are not supported")
    if raw.get("hidden_act", "silu") != "silu":
        raise ModelError(f"activation {raw['hidden_act']!r} is not supported (supported: silu)")
    if raw.get("quantization_config"):
        raise ModelError(
            "quantised safetensors (quantization_config) are not supported; "
            "supported: float32, float16 and bfloat16 safetensors, or a GGUF file"
        )


def _rope(raw: Mapping[str, object], head_dim: int) -> Rope:
    # `rope_parameters` is what transformers 5 writes; files from before have the two others.
    found = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    scaling = cast(Mapping[str, object], found if isinstance(found, Mapping) else {})
    theta = float(cast(float, scaling.get("rope_theta", raw.get("rope_theta", 10000.0))))
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if scaling.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ModelError("partial rotary embedding is not supported")
    if kind == "default":
        return Rope(theta)
    numbers = {k: float(v) for k, v in scaling.items() if isinstance(v, int | float)}
    try:
        if kind == "linear":
            return Rope(theta, (numbers["factor"],) * (head_dim // 2))
        if kind == "llama3":
            return Rope(theta, llama3_divisors(theta, head_dim, numbers))
    except KeyError as error:
        raise ModelError(f"rope scaling {kind!r} lacks {error.args[0]}") from error
    raise ModelError(
        f"rope scaling {kind!r} is not supported (supported: default, linear, llama3)"
    )


def eos_ids(raw: Mapping[str, object], folder: Path) -> tuple[int, ...]:
    """End-of-sequence ids of a config and of the `generation_config.json` in its folder."""
    ids: dict[int, None] = {}
    for source in (_generation(folder), raw):
        value = source.get("eos_token_id")
        for token in value if isinstance(value, list) else [value]:
            if isinstance(token, int):
                ids[token] = None
    return tuple(ids)


def _temperature(folder: Path) -> float:
    """`do_sample` is not read: it says how its library draws when asked for nothing."""
    value = _generation(folder).get("temperature")
    if value is None:
        return 1.0
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= cast(float, value) <= MAX_TEMPERATURE:
        raise ModelError(
            f"{folder / _GENERATION}: temperature is {value!r}, not a number from 0 to "
            f"{MAX_TEMPERATURE}"
        )
    return float(cast(float, value))


def _generation(folder: Path) -> dict[str, object]:
    path = folder / _GENERATION
    return read_json(path) if path.exists() else {}
