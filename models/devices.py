"""Where a model computes, and in which dtype."""

from typing import Literal

import torch

from models.errors import ModelError
from models.linear import fastest_dtype

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
DtypeName = Literal["auto", "bf16", "fp16", "fp32"]


def choose_device(requested: str) -> str:
    """`cpu` or a GPU of torch's, `cuda` or `cuda:1` for one of several. `auto` takes a GPU
    where there is one. ModelError where a GPU was asked for and torch finds none."""
    found = torch.cuda.is_available()
    if requested == "auto":
        return "cuda" if found else "cpu"
    if requested != "cpu" and not found:
        why = "finds no GPU" if torch.version.cuda else "was built without CUDA"
        raise ModelError(f"model.device = {requested}: torch {torch.__version__} {why}")
    return requested


def memory_bytes(device: str) -> int | None:
    """All that a GPU has; None for a CPU."""
    if device == "cpu":
        return None
    return int(torch.cuda.get_device_properties(device).total_memory)


def choose_dtype(requested: DtypeName, device: str) -> str:
    """A name of `DTYPES`. ModelError for fp16 on a CPU."""
    if requested == "auto":
        return fastest_dtype() if device == "cpu" else "bf16"
    if requested == "fp16" and device == "cpu":
        raise ModelError("model.dtype = fp16 is for GPUs; a CPU takes bf16 or fp32")
    return requested
