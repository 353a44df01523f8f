"""How much memory FlashInfer's `fa2` kernels need for contexts that are split over blocks."""

from memory.attention.interface import KVSpec

BLOCKS_PER_MULTIPROCESSOR = 2
LONG_TILE, MIDDLE_TILE, SHORT_TILE = 128, 64, 16
FLOAT_BYTES = 4


def workspace_bytes(spec: KVSpec, max_rows: int, multiprocessors: int) -> int:
    """The most that a step plans of the float workspace: for each query head and slot of a
    block's tile of queries, a float32 vector and its log-sum, of every block there may be.

    An eager step is split only as long as two blocks a multiprocessor are not exceeded,
    whatever the tile. A graph of decode rows always counts as split, and has a block for
    every tile that so many rows may fill. See `PrefillSplitQOKVIndptr` and `PrefillPlanImpl`
    in FlashInfer's include/flashinfer/attention/scheduler.cuh, and `FA2DetermineCtaTileQ` in
    utils.cuh, as in 0.6.18.post1; 0.7.4 needs no more, since it counts a tile's queries once
    for all the heads that share it. With 64 query heads of 128 over 8 key heads, 256 rows
    and 132 multiprocessors it is 193 MiB, where FlashInfer recommends 128."""
    group = spec.num_q_heads // spec.num_kv_heads
    blocks = BLOCKS_PER_MULTIPROCESSOR * multiprocessors // spec.num_kv_heads
    longest, tile = _tile(LONG_TILE, spec.head_dim), _tile(group, spec.head_dim)
    filled = -(-max_rows * group // tile) + max_rows - 1
    slots = max(blocks * longest, max(blocks, filled) * tile)
    return slots * spec.num_q_heads * (spec.head_dim + 1) * FLOAT_BYTES


def _tile(queries: int, head_dim: int) -> int:
    """Of a block, for rows of so many queries (tokens times heads that share a key head)."""
    if queries > MIDDLE_TILE and head_dim < 256:
        return LONG_TILE
    return MIDDLE_TILE if queries > SHORT_TILE else SHORT_TILE
