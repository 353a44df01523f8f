"""Tiny random models of each family, made by transformers, and rows to run them with."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import torch
import transformers
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from gguf.quants import quantize
from torch import Tensor
from transformers import PreTrainedModel

from models.gguf_weights import gguf_name

SHAPE = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "eos_token_id": 1,
    "initializer_range": 0.4,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
KINDS: dict[str, tuple[str, dict[str, object]]] = {
    "llama": ("Llama", {}),
    "llama, tied": ("Llama", {"tie_word_embeddings": True}),
    "llama, llama3 rope": ("Llama", {"rope_parameters": LLAMA3}),
    "llama, biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {}),
    "qwen2, tied": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3, tied": ("Qwen3", {"tie_word_embeddings": True}),
}
SELDOM: dict[str, tuple[str, dict[str, object]]] = {
    "llama, no groups": ("Llama", {"num_key_value_heads": 4}),
    "qwen2, no groups": ("Qwen2", {"num_key_value_heads": 4}),
    "mistral, eight heads": (
        "Mistral",
        {
            "num_attention_heads": 8,
            "num_key_value_heads": 8,
            "head_dim": 8,
            "sliding_window": None,
        },
    ),
    "qwen3, wide heads": ("Qwen3", {"head_dim": 128}),
    "qwen3, biases": ("Qwen3", {"attention_bias": True}),
}
"""Kinds that are not crossed with every setting."""


def tiny_model(kind: str) -> PreTrainedModel:
    """A float32 model of one of `KINDS` or `SELDOM`, the same at each call. Norms and biases
    are random too, since ones and zeros would hide a mistake."""
    name, changes = {**KINDS, **SELDOM}[kind]
    config = getattr(transformers, f"{name}Config")(**{**SHAPE, **changes})
    torch.manual_seed(7)
    model: PreTrainedModel = getattr(transformers, f"{name}ForCausalLM")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.float().eval()


def saved(model: PreTrainedModel, folder: Path, shard_bytes: int = 10**9) -> Path:
    """The model as config.json and safetensors in `folder`."""
    model.save_pretrained(folder, max_shard_size=shard_bytes)
    return folder


def write_gguf(
    model: PreTrainedModel,
    path: Path,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    metadata: Mapping[str, object] = MappingProxyType({}),
    tensors: Mapping[str, Tensor] = MappingProxyType({}),
) -> Path:
    """The model as a GGUF file, with Q and K rows in the order llama.cpp's converter gives
    them. Matrices are stored as `kind`. `metadata` has other values for its keys, None for
    none, and `tensors` more tensors."""
    c = model.config
    writer = GGUFWriter(path, c.model_type)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_key_length(c.head_dim if hasattr(c, "head_dim") else 16)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    writer.add_eos_token_id(c.eos_token_id)
    writer.add_token_list(["a", "é", "<eos>"])
    if c.rope_parameters["rope_type"] == "llama3":
        plain = c.rope_parameters["rope_theta"] ** (-torch.arange(0, 16, 2) / 16)
        writer.add_tensor(
            "rope_freqs.weight", (plain / model.model.rotary_emb.inv_freq).numpy()
        )
    for name, parameter in model.named_parameters():
        values = _permuted(model, name, parameter.detach()).numpy()
        stored = quantize(values, kind if values.ndim == 2 else GGMLQuantizationType.F32)
        raw = kind if values.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(name), stored, raw_dtype=raw)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor.numpy())
    for key, value in metadata.items():
        writer.kv_data[0].pop(key, None)
        if value is not None:
            writer.add_key_value(key, value, GGUFValueType.get_type(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _permuted(model: PreTrainedModel, name: str, tensor: Tensor) -> Tensor:
    c = model.config
    heads = {"q_proj": c.num_attention_heads, "k_proj": c.num_key_value_heads}
    count = heads.get(name.split(".")[-2])
    if c.model_type != "llama" or count is None:
        return tensor
    halves = tensor.reshape(count, 2, tensor.shape[0] // count // 2, *tensor.shape[1:])
    return halves.transpose(1, 2).reshape(tensor.shape).contiguous()
