"""Writes the default model, dequantised, as a Hugging Face folder: what peers load, so that
all engines compute with the same numbers.

    python -m bench.peers.checkpoint OUT --dtype bfloat16
"""

import argparse
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from models.config import ModelConfig
from models.gguf_config import from_gguf
from models.gguf_file import read_gguf
from models.gguf_tokenizer import encoder_from_gguf
from models.gguf_weights import GgufWeights
from models.source import model_path

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def hf_config(config: ModelConfig, dtype: torch.dtype) -> LlamaConfig:
    """The same shape in transformers' words."""
    return LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_q_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rms_norm_eps=config.norm_eps,
        max_position_embeddings=config.context_tokens,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope.theta},
        tie_word_embeddings=config.tied,
        bos_token_id=1,
        eos_token_id=list(config.eos_ids),
        pad_token_id=config.eos_ids[0],
        dtype=dtype,
        architectures=["LlamaForCausalLM"],
    )


def write(out: Path, dtype: torch.dtype) -> None:
    """Weights, config and tokenizer of the default model."""
    file = read_gguf(model_path("default"))
    config = from_gguf(file)
    weights = GgufWeights(file, config)
    model = LlamaForCausalLM(hf_config(config, dtype))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights.tensor(name, tuple(parameter.shape)))
    model.to(dtype).save_pretrained(out)
    PreTrainedTokenizerFast(tokenizer_object=encoder_from_gguf(file)).save_pretrained(out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtype", default="bfloat16", choices=tuple(DTYPES))
    options = parser.parse_args()
    write(options.out, DTYPES[options.dtype])


if __name__ == "__main__":
    main()
