"""A decoder's config from the metadata of a GGUF file (keys: ggml's docs/gguf.md)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.config import ModelConfig, check_family, check_shape, refuse_soft_caps
from models.errors import ModelError
from models.gguf_file import GgufFile
from models.rope import Rope

FAMILIES = ("llama", "qwen2", "qwen3")
"""What the format calls them: a Mistral is a llama there."""
ROPE_FREQS = "rope_freqs.weight"
_USUAL_YARN = {
    "attn_factor": 1.0,
    "yarn_attn_factor": 1.0,
    "yarn_ext_factor": 1.0,
    "yarn_beta_fast": 32.0,
    "yarn_beta_slow": 1.0,
    "yarn_log_multiplier": 0.0,
}


def from_gguf(file: GgufFile) -> ModelConfig:
    """Config of a GGUF model. ModelError names what is missing or unsupported. Biases,
    norms and tied heads are told by which tensors the file has."""
    _refuse_parts(file)
    family = check_family(file.metadata.get("general.architecture"), FAMILIES)
    refuse_soft_caps(file.metadata, f"{family}.")
    values = _Values(file, family)
    _refuse_other_layers(values)
    heads = values.whole("attention.head_count")
    hidden = values.whole("embedding_length")
    head_dim = values.whole("attention.key_length", hidden // heads)
    if values.whole("rope.dimension_count", head_dim) != head_dim:
        raise ModelError("partial rotary embedding is not supported")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError(f"{file.path} has no tensor token_embd.weight")
    window = file.metadata.get(f"{family}.attention.sliding_window")
    config = ModelConfig(
        family=family,
        vocab_size=embedding.shape[0],
        hidden_size=hidden,
        intermediate_size=values.whole("feed_forward_length"),
        num_layers=values.whole("block_count"),
        num_q_heads=heads,
        num_kv_heads=values.whole("attention.head_count_kv", heads),
        head_dim=head_dim,
        norm_eps=values.real("attention.layer_norm_rms_epsilon"),
        rope=_rope(values, head_dim),
        context_tokens=values.whole("context_length"),
        window=window if isinstance(window, int) and window > 0 else None,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        qk_norm=family == "qwen3",
        tied="output.weight" not in file.tensors,
        eos_ids=gguf_eos_ids(file),
        mlp_bias="blk.0.ffn_up.bias" in file.tensors,
        head_bias="output.bias" in file.tensors,
    )
    check_shape(config)
    return config


@dataclass(frozen=True, slots=True)
class _Values:
    file: GgufFile
    family: str

    def whole(self, name: str, default: int | None = None) -> int:
        """A positive number, or one for each layer that is always the same."""
        value = self.file.metadata.get(f"{self.family}.{name}", default)
        if isinstance(value, list) and value and value.count(value[0]) == len(value):
            value = value[0]
        if not isinstance(value, int) or value < 1:
            raise ModelError(
                f"{self.file.path}: {self.family}.{name} is {value!r}, not a positive number"
            )
        return value

    def real(self, name: str, default: float | None = None) -> float:
        value = self.file.metadata.get(f"{self.family}.{name}", default)
        if not isinstance(value, int | float):
            raise ModelError(f"{self.file.path}: {self.family}.{name} is no number: {value!r}")
        # Stored as float32: the shortest decimal that means the same is what was written.
        return float(str(np.float32(value)))


def _refuse_parts(file: GgufFile) -> None:
    """ModelError where the file is not a whole model."""
    parts, number = file.metadata.get("split.count"), file.metadata.get("split.no")
    if isinstance(parts, int) and parts > 1:
        part = number + 1 if isinstance(number, int) else "?"
        raise ModelError(
            f"{file.path} is part {part} of {parts} of a split model: merge the parts into one "
            "file first (llama-gguf-split --merge)"
        )
    kind = file.metadata.get("general.type", "model")
    if kind != "model":
        raise ModelError(f"{file.path} is no model: general.type is {kind!r}")


def _refuse_other_layers(values: _Values) -> None:
    metadata, family = values.file.metadata, values.family
    for name in ("expert_count", "nextn_predict_layers"):
        if metadata.get(f"{family}.{name}"):
            raise ModelError(
                f"such layers are not supported: {family}.{name} = "
                f"{metadata[f'{family}.{name}']}"
            )
    if metadata.get(f"{family}.attention.causal") is False:
        raise ModelError(
            f"attention in both directions ({family}.attention.causal false) is not supported"
        )


def _rope(values: _Values, head_dim: int) -> Rope:
    """A file without a type means linear, which early ones write as `scale_linear`."""
    theta = values.real("rope.freq_base", 10000.0)
    kind = values.file.metadata.get(f"{values.family}.rope.scaling.type", "linear")
    if kind not in ("none", "linear", "yarn"):
        raise ModelError(
            f"rope scaling {kind!r} is not supported (supported: none, linear, yarn)"
        )
    older = values.real("rope.scale_linear", 1.0)
    factor = 1.0 if kind == "none" else values.real("rope.scaling.factor", older) or 1.0
    divisors = _stored_divisors(values.file, head_dim)
    if kind == "yarn":
        return _yarn(values, theta, head_dim, factor)
    if factor == 1.0 and divisors is None:
        return Rope(theta)
    plain = theta ** -(np.arange(0, head_dim, 2) / head_dim)
    scaled = plain / factor if divisors is None else plain / factor / divisors
    name = f"linear, factor {factor:g}" if divisors is None else "factors in the file"
    return Rope(theta, tuple(scaled.tolist()), kind=name)


def _stored_divisors(file: GgufFile, head_dim: int) -> NDArray[np.float32] | None:
    """Llama 3's scaling arrives ready made: one float32 divisor a frequency."""
    stored = file.tensors.get(ROPE_FREQS)
    if stored is None:
        return None
    if (stored.kind, stored.shape) != (0, (head_dim // 2,)):
        raise ModelError(
            f"tensor {ROPE_FREQS} has shape {list(stored.shape)}, expected [{head_dim // 2}] "
            "in float32"
        )
    return np.fromfile(file.path, "<f4", head_dim // 2, offset=stored.offset)


def _yarn(values: _Values, theta: float, head_dim: int, factor: float) -> Rope:
    from models.hf_config import yarn

    for name, usual in _USUAL_YARN.items():
        if values.real(f"rope.scaling.{name}", usual) != usual:
            raise ModelError(f"{values.family}.rope.scaling.{name} is not supported")
    if ROPE_FREQS in values.file.tensors:
        raise ModelError(f"rope scaling 'yarn' with {ROPE_FREQS} is not supported")
    context = values.whole("context_length")
    original = values.whole("rope.scaling.original_context_length", context)
    return yarn(theta, head_dim, factor, original)


def gguf_eos_ids(file: GgufFile) -> tuple[int, ...]:
    """End-of-sequence and end-of-turn ids that the file names."""
    names = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    found = (file.metadata.get(name) for name in names)
    return tuple(dict.fromkeys(token for token in found if isinstance(token, int)))
