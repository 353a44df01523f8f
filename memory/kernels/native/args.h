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

// `x` [rows, inputs] times packed weights, plus `bias` (null or fp32, whole units), to `y`
// [rows, outputs]; x and y are of the weights' type. Weights lie in panels of PANEL outputs,
// [inputs][PANEL] in fp32 and [inputs / 2][PANEL][2] in bf16, padded with zeros to whole units
// and to an even number of inputs. The two scratches are set inside: `strips` holds x, `wide`
// one unit's weights for each thread.
struct Product {
  const void* weight;
  const float* bias;
  const void* x;
  void* y;
  float *strips, *wide;
  int32_t rows, inputs, outputs, is_bf16, threads;
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
  void (*lay_strip)(const Product&, int strip);
  void (*multiply)(const Product&, int unit, float* wide);
};

extern const Level baseline_level;
#if defined(__x86_64__)
extern const Level avx2_level, avx512_level;
#endif

constexpr int MAX_HEAD_DIM = 256;
constexpr int TILE_ROWS = 32;
constexpr int PANEL = 16, UNIT = 32;  // outputs
constexpr int STRIP_ROWS = 6, NARROW_STRIP_ROWS = 5, WIDEN_ROWS = 64;

inline int even_inputs(const Product& a) { return a.inputs + a.inputs % 2; }

// Whether bf16 weights are widened once a unit and not once a strip.
inline bool widens(const Product& a) { return a.is_bf16 && a.rows >= WIDEN_ROWS; }

// Rows are computed in strips of nearly equal size. With bf16 weights six rows want one register
// more than AVX2 has, which costs more than weights read anew once every five.
inline int strip_count(const Product& a) {
  const int most = a.is_bf16 && !widens(a) ? NARROW_STRIP_ROWS : STRIP_ROWS;
  return a.rows <= STRIP_ROWS ? 1 : (a.rows + most - 1) / most;
}

struct Strip {
  int first, rows;
};

inline Strip strip_at(const Product& a, int strip) {
  const int count = strip_count(a), least = a.rows / count, larger = a.rows % count;
  return {strip * least + (strip < larger ? strip : larger), least + (strip < larger)};
}
