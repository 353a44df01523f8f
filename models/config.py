"""What distinguishes one Llama-family decoder from another, as plain values.

`models.hf_config` reads a `config.json`, `models.gguf_config` the metadata of a GGUF file.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from models.errors import ModelError
from models.rope import Rope

SUPPORTED = ("llama", "mistral", "qwen2", "qwen3")
MAX_TEMPERATURE = 10
_MAX_WIDTH, _MAX_LAYERS = 2**26, 2**14
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
    mlp_bias: bool = False
    head_bias: bool = False


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


def check_family(name: object, supported: tuple[str, ...] = SUPPORTED) -> str:
    """The architecture's name, or ModelError naming those that are supported."""
    if not isinstance(name, str) or name not in supported:
        raise ModelError(
            f"architecture {name!r} is not supported (supported: {', '.join(supported)})"
        )
    return name


def check_shape(config: ModelConfig) -> None:
    """ModelError where heads cannot be grouped or dimensions cannot be rotated, and for
    numbers that no model has: nothing could be computed with them, not even that."""
    width = max(config.num_q_heads, config.num_kv_heads) * config.head_dim
    widest = max(config.vocab_size, config.hidden_size, config.intermediate_size, width)
    if widest > _MAX_WIDTH or config.num_layers > _MAX_LAYERS:
        raise ModelError(
            f"the config is damaged: {config.num_layers} layers, tensors {widest} wide"
        )
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


def eos_ids(raw: Mapping[str, object], folder: Path) -> tuple[int, ...]:
    """End-of-sequence ids of a config and of the `generation_config.json` in its folder."""
    ids: dict[int, None] = {}
    for source in (_generation(folder), raw):
        value = source.get("eos_token_id")
        for token in value if isinstance(value, list) else [value]:
            if isinstance(token, int):
                ids[token] = None
    return tuple(ids)


def temperature(folder: Path) -> float:
    """That of requests which name none. `do_sample` is not read: it says how its library
    draws when asked for nothing."""
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
