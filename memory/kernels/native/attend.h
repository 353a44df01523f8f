// Attention of one tile (up to 32 query rows of one request and one kv head) over its pages:
// online softmax over blocks of 16 absolute positions, whatever the page size, so a row's
// order of operations depends on its own context alone.
#pragma once

#include "args.h"
#include "simd.h"

namespace WALKWAY_LEVEL {

// State of a tile's query rows between blocks.
struct TileState {
  int dim;
  float q[TILE_ROWS * MAX_HEAD_DIM];  // scaled; row r at r * dim, close together for the cache
  float acc[TILE_ROWS * MAX_HEAD_DIM];
  float wide[2 * BLOCK * MAX_HEAD_DIM];  // a bf16 block, where several rows share it
  F sum[TILE_ROWS];
  float max[TILE_ROWS];
  int end[TILE_ROWS];  // positions the row sees: 0 .. end - 1
};

// Walks a request's positions through its page table.
template <typename T>
struct Cursor {
  const Pool& pool;
  const T* base;
  const int32_t* pages;  // the next page to enter
  int left;              // positions not yet handed out
  int in_page = 0;       // of them in the page of `key`
  const T* key = nullptr;
  bool more = true;

  // Keys of the next 16 positions; past the end the last key again, whose score is masked.
  INLINE_MEMBER void next(const T** keys) {
    more = left > 0;
    if (in_page == 0 && left >= BLOCK && pool.page_size % BLOCK == 0) {
      advance();
      for (int j = 0; j < BLOCK; j++) keys[j] = key + j * pool.token_stride;
      key = keys[BLOCK - 1];
      left -= BLOCK - 1;
      in_page -= BLOCK - 1;
      return;
    }
    for (int j = 0; j < BLOCK; j++) {
      if (left > 0) advance();
      keys[j] = key;
    }
  }

  INLINE_MEMBER void advance() {
    left--;
    if (in_page == 0) {
      key = base + *pages++ * pool.page_stride;
      in_page = pool.page_size;
    } else {
      key += pool.token_stride;
    }
    in_page--;
  }
};

template <typename T>
INLINE void prefetch(const T* const* keys, int64_t v_offset, int dim) {
  constexpr int LINE = 64 / sizeof(T);
  for (int j = 0; j < BLOCK; j++) {
    for (int d = 0; d < dim; d += LINE) __builtin_prefetch(keys[j] + d, 0, 2);
  }
  for (int j = 0; j < BLOCK; j++) {
    for (int d = 0; d < dim; d += LINE) __builtin_prefetch(keys[j] + v_offset + d, 0, 2);
  }
}

template <int R, int J, typename T>
INLINE void dot_rows(const float* q, const T* const* keys, int dim, F* sums) {
  F acc[R][J] = {};
  for (int d = 0; d < dim; d += W) {
    F x[R];
    UNROLL for (int r = 0; r < R; r++) x[r] = load(q + r * dim + d);
    UNROLL for (int j = 0; j < J; j++) {
      F k = load(keys[j] + d);
      UNROLL for (int r = 0; r < R; r++) acc[r][j] = fma(x[r], k, acc[r][j]);
    }
  }
  UNROLL for (int r = 0; r < R; r++) {
    UNROLL for (int j = 0; j < J; j++) sums[r * BLOCK + j] = acc[r][j];
  }
}

template <int R, int C, typename T>
INLINE void add_values(const float* p, const T* const* values, int n, float* acc, int dim, int d) {
  F a[R][C];
  UNROLL for (int r = 0; r < R; r++) {
    UNROLL for (int c = 0; c < C; c++) a[r][c] = load(acc + r * dim + d + c * W);
  }
  for (int j = 0; j < n; j++) {
    F weight[R];
    UNROLL for (int r = 0; r < R; r++) weight[r] = splat(p[r * BLOCK + j]);
    UNROLL for (int c = 0; c < C; c++) {
      F v = load(values[j] + d + c * W);
      UNROLL for (int r = 0; r < R; r++) a[r][c] = fma(weight[r], v, a[r][c]);
    }
  }
  UNROLL for (int r = 0; r < R; r++) {
    UNROLL for (int c = 0; c < C; c++) store(acc + r * dim + d + c * W, a[r][c]);
  }
}

// A row's scores of the first n positions, less the new maximum, to `p`, and everything summed
// so far shrunk to it. The other positions weigh 0 and their values are never read, so a NaN
// behind a row's end cannot reach it.
INLINE void raise_max(TileState& s, int row, const F* sums, int n, float* p) {
  F x[BV];
  F top = splat(s.max[row]);
  for (int v = 0; v < BV; v++) {
    F score = sum_each(sums + v * W);
    x[v] = iota() + (float)(v * W) < (float)n ? score : splat(-__builtin_inff());
    top = x[v] > top ? x[v] : top;
  }
  const float max = max_lanes(top);
  if (max != s.max[row]) {
    const F shrink = exp(splat(s.max[row] - max));
    s.sum[row] *= shrink;
    float* acc = s.acc + row * s.dim;
    for (int d = 0; d < s.dim; d += W) store(acc + d, load(acc + d) * shrink);
    s.max[row] = max;
  }
  for (int v = 0; v < BV; v++) store(p + v * W, x[v] - max);
}

// Differences in `p` to weights; all rows at once, since one exp alone waits on itself.
template <int R>
INLINE void weigh(TileState& s, int row, float* p) {
  UNROLL for (int v = 0; v < R * BV; v++) store(p + v * W, exp(load(p + v * W)));
  for (int r = 0; r < R; r++)
    for (int v = 0; v < BV; v++) s.sum[row + r] += load(p + r * BLOCK + v * W);
}

// One block for R rows that see the same n of its positions.
template <int R, typename T>
static void block(TileState& s, int row, const T* const* keys, int64_t v_offset, int n) {
  constexpr int J = R == 1 ? 8 : R == 4 && W < 16 ? 2 : 4;
  constexpr int C = J;
  const int dim = s.dim;
  F sums[R * BLOCK];
  float p[R * BLOCK];
  const T* values[BLOCK];
  for (int j = 0; j < BLOCK; j++) values[j] = keys[j] + v_offset;
  for (int j = 0; j < BLOCK; j += J) dot_rows<R, J>(s.q + row * dim, keys + j, dim, sums + j);
  for (int r = 0; r < R; r++) raise_max(s, row + r, sums + r * BLOCK, n, p + r * BLOCK);
  weigh<R>(s, row, p);
  float* acc = s.acc + row * dim;
  int d = 0;
  for (; d + C * W <= dim; d += C * W) add_values<R, C>(p, values, n, acc, dim, d);
  for (; d < dim; d += W) add_values<R, 1>(p, values, n, acc, dim, d);
}

// Up to four rows at a time that see equally much of the block.
template <typename T>
static void block_rows(TileState& s, int rows, const T* const* keys, int64_t v_offset, int start) {
  for (int row = 0, count; row < rows; row += count) {
    const int seen = s.end[row] - start, n = seen < BLOCK ? seen : BLOCK;
    count = 1;
    while (count < 4 && row + count < rows && (n == BLOCK || s.end[row + count] == s.end[row]))
      count++;
    if (n <= 0) continue;
    if (count == 1) block<1>(s, row, keys, v_offset, n);
    if (count == 2) block<2>(s, row, keys, v_offset, n);
    if (count == 3) block<3>(s, row, keys, v_offset, n);
    if (count == 4) block<4>(s, row, keys, v_offset, n);
  }
}

template <typename T>
INLINE void attend_block(TileState& s, int rows, const T* const* keys, int64_t v_offset,
                         int start) {
  if (sizeof(T) == sizeof(float) || rows <= 4)
    return block_rows(s, rows, keys, v_offset, start);
  const float* wide[BLOCK];
  for (int j = 0; j < BLOCK; j++) {
    float* key = s.wide + j * s.dim;
    for (int d = 0; d < s.dim; d += W) {
      store(key + d, load(keys[j] + d));
      store(key + BLOCK * s.dim + d, load(keys[j] + v_offset + d));
    }
    wide[j] = key;
  }
  block_rows(s, rows, wide, BLOCK * s.dim, start);
}

template <typename T>
static void start_tile(const Attend& a, int head, const Tile& tile, TileState& s) {
  s.dim = a.pool.head_dim;
  const int dim = a.pool.head_dim, heads = a.pool.kv_heads * a.group;
  const int first = a.qo_indptr[tile.row], tokens = a.qo_indptr[tile.row + 1] - first;
  const F scale = splat(1.0f / __builtin_sqrtf((float)dim));
  for (int r = 0; r < tile.rows; r++) {
    const int token = (tile.first + r) / a.group, g = (tile.first + r) % a.group;
    const T* q = (const T*)a.q + ((int64_t)(first + token) * heads + head * a.group + g) * dim;
    for (int d = 0; d < dim; d += W) {
      store(s.q + r * dim + d, load(q + d) * scale);
      store(s.acc + r * dim + d, F{});
    }
    s.sum[r] = F{};
    s.max[r] = -__builtin_inff();
    s.end[r] = a.kv_lens[tile.row] - tokens + token + 1;
  }
}

template <typename T>
static void finish_tile(const Attend& a, int head, const Tile& tile, const TileState& s) {
  const int dim = a.pool.head_dim, heads = a.pool.kv_heads * a.group;
  const int first = a.qo_indptr[tile.row];
  for (int r = 0; r < tile.rows; r++) {
    const int token = (tile.first + r) / a.group, g = (tile.first + r) % a.group;
    T* out = (T*)a.out + ((int64_t)(first + token) * heads + head * a.group + g) * dim;
    const F total = splat(sum_lanes(s.sum[r]));
    for (int d = 0; d < dim; d += W) store(out + d, load(s.acc + r * dim + d) / total);
  }
}

template <typename T>
static void attend_tile(const Attend& a, int index, int head) {
  const Tile& tile = a.tiles[index];
  const int rows = tile.rows;
  TileState s;
  start_tile<T>(a, head, tile, s);
  Cursor<T> cursor{a.pool, (const T*)a.pool.base + head * a.pool.head_stride,
                   a.kv_indices + a.kv_indptr[tile.row], s.end[rows - 1]};
  const T *keys[BLOCK], *ahead[BLOCK];
  cursor.next(ahead);
  for (int start = 0; start < s.end[rows - 1]; start += BLOCK) {
    memcpy(keys, ahead, sizeof keys);
    cursor.next(ahead);
    if (cursor.more) prefetch(ahead, a.pool.v_offset, s.dim);
    attend_block(s, rows, keys, a.pool.v_offset, start);
  }
  finish_tile<T>(a, head, tile, s);
}

static void attend(const Attend& a, int tile, int head) {
  if (a.pool.is_bf16) return attend_tile<bf16>(a, tile, head);
  attend_tile<float>(a, tile, head);
}

}  // namespace WALKWAY_LEVEL
