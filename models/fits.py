"""Whether a model's weights fit where they are to go, told before they are read."""

from models.config import ModelConfig
from models.errors import ModelError
from models.sizes import apart


def refuse_too_large(
    config: ModelConfig, ranks: int, dtype: str, itemsize: int, there_bytes: int, where: str
) -> None:
    """ModelError with both numbers where a rank's weights do not fit into `there_bytes`:
    later it would be the system that ends the process, without a word."""
    need_bytes = weight_bytes(config, ranks, itemsize)
    if need_bytes > there_bytes:
        need, there = apart(need_bytes, there_bytes)
        each = f" on each of {ranks} ranks" if ranks > 1 else ""
        raise ModelError(
            f"the weights need {need} in {dtype}{each}, and {there} of {where} are free"
        )


def weight_bytes(config: ModelConfig, ranks: int, itemsize: int) -> int:
    """Of one rank, which has every table; norms and biases left out."""
    tables = (1 if config.tied else 2) * config.vocab_size * config.hidden_size
    layers = config.num_layers * layer_weights(config)
    return (tables + -(-layers // ranks)) * itemsize


def layer_weights(config: ModelConfig) -> int:
    """Of the products of one layer."""
    heads = 2 * (config.num_q_heads + config.num_kv_heads) * config.head_dim
    return config.hidden_size * (heads + 3 * config.intermediate_size)
