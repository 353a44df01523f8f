"""Attention in float32 over keys and values in one piece, row by row: what every kernel is
held against. It knows nothing of pages."""

import torch
from torch import Tensor

from bench.gpu.steps import RandomStep


def exact(step: RandomStep) -> Tensor:
    """float32 [tokens, q_heads, head_dim]: causal, aligned to the end of each row."""
    counts = [shape.tokens for shape in step.shapes]
    rows = zip(torch.split(step.q, counts), step.k, step.v, strict=True)
    return torch.cat([_row(q.float(), k.float(), v.float()) for q, k, v in rows])


def _row(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """q [tokens, q_heads, dim], k, v [length, kv_heads, dim]. Query heads of one KV head are
    next to each other. Plain products: a fused kernel may compute in TF32."""
    tokens, q_heads, dim = q.shape
    length, kv_heads, _ = k.shape
    folded = q.view(tokens, kv_heads, -1, dim).permute(1, 2, 0, 3)  # kv, group, tokens, dim
    k, v = (x.transpose(0, 1)[:, None] for x in (k, v))
    positions = torch.arange(length - tokens, length, device=q.device)
    unseen = torch.arange(length, device=q.device) > positions[:, None]
    scores = (folded @ k.transpose(-1, -2) * dim**-0.5).masked_fill(unseen, -torch.inf)
    out = torch.matmul(scores.softmax(-1), v)
    return out.permute(2, 0, 1, 3).reshape(tokens, q_heads, dim)


def error(out: Tensor, expected: Tensor) -> float:
    """The largest difference; infinite where `out` has a NaN."""
    found = (out.float() - expected).abs()
    return float(found.nan_to_num(torch.inf).amax())
