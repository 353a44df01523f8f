"""The float workspace holds whatever FlashInfer 0.6.18.post1 plans into it."""

from collections.abc import Sequence

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.attention.flashinfer_workspace import workspace_bytes
from memory.attention.interface import KVSpec

HEADS = ((9, 3), (14, 2), (32, 8), (64, 8), (64, 1), (71, 1))
PAGE_SIZE = 16


def spec_of(q_heads: int, kv_heads: int, head_dim: int) -> KVSpec:
    return KVSpec(2, q_heads, kv_heads, head_dim, PAGE_SIZE, torch.bfloat16)


def planned_bytes(
    spec: KVSpec, rows: Sequence[tuple[int, int]], multiprocessors: int, graph: bool
) -> int:
    """What its planner allocates for rows (tokens, pages): a search for the smallest chunk
    of pages with which the blocks stay within their number."""
    group = spec.num_q_heads // spec.num_kv_heads
    most = 2 * multiprocessors // spec.num_kv_heads
    queries, pages = [tokens * group for tokens, _ in rows], [count for _, count in rows]
    tile = tile_of(group if graph else sum(queries) // len(rows), spec.head_dim)
    tiles = [-(-count // tile) for count in queries]

    def blocks(chunk: int) -> int:
        return sum(t * -(-max(p, 1) // chunk) for t, p in zip(tiles, pages, strict=True))

    low, high = max(128 // spec.page_size, 1), max(1, *pages)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if blocks(middle) > most else (low, middle)
    if not (graph or low < max(1, *pages)):
        return 0
    filled = -(-sum(queries) // tile) + len(rows) - 1
    padded = max(most, filled) if graph else blocks(low)
    return spec.num_q_heads * padded * tile * (spec.head_dim + 1) * 4


def tile_of(queries: int, head_dim: int) -> int:
    if queries > 64 and head_dim < 256:
        return 128
    return 64 if queries > 16 else 16


specs = st.builds(
    lambda heads, head_dim: spec_of(*heads, head_dim),
    st.sampled_from(HEADS),
    st.sampled_from((64, 128, 256)),
)
kv_pages = st.integers(1, 4096)


@settings(max_examples=300, deadline=None)
@given(
    specs,
    st.lists(st.tuples(st.integers(1, 700), kv_pages), min_size=1, max_size=40),
    st.sampled_from((16, 108, 132, 148)),
)
def test_a_step_of_any_rows_fits(
    spec: KVSpec, rows: list[tuple[int, int]], multiprocessors: int
) -> None:
    room = workspace_bytes(spec, len(rows), multiprocessors)
    assert planned_bytes(spec, rows, multiprocessors, graph=False) <= room


@settings(max_examples=300, deadline=None)
@given(specs, st.lists(kv_pages, min_size=1, max_size=256), st.sampled_from((16, 132)))
def test_a_graph_of_any_rows_up_to_the_most_fits(
    spec: KVSpec, pages: list[int], multiprocessors: int
) -> None:
    rows = [(1, count) for count in pages]
    need = planned_bytes(spec, rows, multiprocessors, graph=True)
    assert need <= workspace_bytes(spec, 256, multiprocessors)


def test_large_models_need_more_than_what_flashinfer_recommends_and_small_ones_less() -> None:
    large, small = spec_of(64, 8, 128), spec_of(9, 3, 64)
    # One row of 1024 tokens over 4096 pages: 33 blocks of 128 queries, each split off.
    assert planned_bytes(large, [(128, 4096)], 132, graph=False) > 128 << 20
    assert workspace_bytes(large, 256, 132) > 128 << 20 > workspace_bytes(small, 256, 132)
