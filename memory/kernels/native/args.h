// Arguments of the kernels. Their layouts are repeated in memory/kernels/library.py.
#pragma once

#include <stdint.h>

// Where a layer's keys and values lie. Strides are in elements; a value lies `v_offset`
// behind its key.
struct Pool {
  void* base;
  int64_t page_stride, token_stride, head_stride, v_offset;
  int32_t page_size, kv_heads, head_dim, is_bf16;
};

// Up to TILE_ROWS query rows of one row; query row = token * group + g.
struct Tile {
  int32_t row, first, rows, blocks;
};

// Queries `q` [tokens, kv_heads * group, head_dim] to `out`, same shape.
struct Attend {
  Pool pool;
  const void* q;
  void* out;
  const int32_t *qo_indptr, *kv_indptr, *kv_indices, *kv_lens;
  const Tile* tiles;
  int32_t num_tiles, group, threads;
};

// `qkv` [tokens, (q_heads + 2 kv_heads) * head_dim] to rotated queries and to the pool.
// `table` [positions, head_dim] is cosines then sines; the norms are null or [head_dim].
struct Rope {
  Pool pool;
  const void* qkv;
  void* q_out;
  const int64_t *positions, *slots;
  const float* table;
  const void *q_norm, *k_norm;
  int64_t table_rows, num_slots;
  int32_t tokens, q_heads, threads;
  float eps;
};

// A row-wise kernel: `rows` of `width`. What a, b, c, out are is said at each kernel.
struct Rows {
  void *a, *out;
  const void *b, *c;
  int32_t rows, width, is_bf16, threads;
  float eps;
};

// One dispatch level's kernels, each for one unit of work.
struct Level {
  const char* name;
  int width;
  void (*attend)(const Attend&, int tile, int head);
  void (*rope)(const Rope&, int token);
  void (*rms_norm)(const Rows&, int row);
  void (*add_rms_norm)(const Rows&, int row);
  void (*silu_and_mul)(const Rows&, int row);
  void (*argmax)(const Rows&, int row);
};

extern const Level baseline_level;
#if defined(__x86_64__)
extern const Level avx2_level, avx512_level;
#endif

constexpr int MAX_HEAD_DIM = 256;
constexpr int TILE_ROWS = 32;
