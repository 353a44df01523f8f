"""Tensors of a GGUF file under their Hugging Face names, dequantised to float32.

llama.cpp's converter reorders the rows of Q and K of Llama models so that rotary pairs are
neighbours; here the halves are rotated, so the rows are put back.
"""

import math
from collections.abc import Collection

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from torch import Tensor

from models.config import ModelConfig
from models.errors import ModelError
from models.gguf_config import ROPE_FREQS
from models.gguf_file import GgufFile, GgufTensor
from models.weights import check_tensor_shape

_PIECE_BYTES = 2**17

_TOP = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


class GgufWeights:
    """The tensors of one file."""

    def __init__(self, file: GgufFile, config: ModelConfig) -> None:
        self._file = file
        permuted = config.family == "llama"
        self._heads = (
            {"attn_q": config.num_q_heads, "attn_k": config.num_kv_heads} if permuted else {}
        )

    @property
    def names(self) -> Collection[str]:
        return self._file.tensors.keys() - {ROPE_FREQS}

    def name_of(self, name: str) -> str | None:
        stem = gguf_name(name)
        return stem if stem in self._file.tensors else None

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        stem = gguf_name(name)
        stored = self._file.tensors.get(stem)
        if stored is None:
            raise ModelError(f"tensor {name} is missing ({stem} in {self._file.path.name})")
        check_tensor_shape(name, stored.shape, shape)  # first: one may be damaged, and huge
        tensor = self._dequantised(name, stored)
        heads = self._heads.get(stem.split(".")[-2])
        return tensor if heads is None else _rows_put_back(tensor, heads)

    def _dequantised(self, name: str, stored: GgufTensor) -> Tensor:
        try:
            kind = GGMLQuantizationType(stored.kind)
            block, block_bytes = GGML_QUANT_SIZES[kind]
            if stored.shape[-1] % block:
                raise ValueError(f"rows of {stored.shape[-1]} are no blocks of {block}")
            size = math.prod(stored.shape) // block * block_bytes
            raw = np.fromfile(self._file.path, np.uint8, size, offset=stored.offset)
            if len(raw) < size:
                raise ValueError("the file ends inside it")
            # One long row a piece: the package works in groups of 16 rows, and short ones
            # take it three times as long.
            piece = max(1, _PIECE_BYTES // block_bytes) * block_bytes
            values = [
                dequantize(raw[None, at : at + piece], kind) for at in range(0, size, piece)
            ]
        except (ValueError, OverflowError, NotImplementedError) as error:
            raise ModelError(
                f"tensor {name} of {self._file.path.name} cannot be dequantised: {error}"
            ) from error
        whole = np.concatenate(values, axis=1).astype(np.float32, copy=False)
        return torch.from_numpy(whole).reshape(stored.shape)


def gguf_name(name: str) -> str:
    """`model.layers.3.mlp.up_proj.weight` -> `blk.3.ffn_up.weight`."""
    stem, kind = name.rsplit(".", 1)
    if stem in _TOP:
        return f"{_TOP[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_LAYER[part]}.{kind}"


def _rows_put_back(tensor: Tensor, heads: int) -> Tensor:
    pairs = tensor.reshape(heads, tensor.shape[0] // heads // 2, 2, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape).contiguous()
