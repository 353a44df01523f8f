// Rotary positions for one token's queries and keys (halves rotated as in GPT-NeoX), after an
// optional norm of each head, and the store of its keys and values into the pool.
#pragma once

#include "args.h"
#include "layer.h"
#include "simd.h"

namespace WALKWAY_LEVEL {

template <typename T>
INLINE void rotate(const T* x, const void* weight, float eps, const float* table, int dim,
                   T* out) {
  float head[MAX_HEAD_DIM];
  for (int d = 0; d < dim; d += W) store(head + d, load(x + d));
  if (weight) {
    float scale[MAX_HEAD_DIM];
    for (int d = 0; d < dim; d += W) store(scale + d, load((const T*)weight + d));
    norm(head, scale, eps, dim, head);
  }
  const int half = dim / 2;
  for (int d = 0; d < half; d += W) {
    F a = load(head + d), b = load(head + half + d);
    F cos = load(table + d), sin = load(table + half + d);
    store(out + d, fma(a, cos, -(b * sin)));
    store(out + half + d, fma(b, cos, a * sin));
  }
}

template <typename T>
INLINE void rope_token(const Rope& a, int token) {
  const Pool& pool = a.pool;
  const int dim = pool.head_dim;
  const T* x = (const T*)a.qkv + (int64_t)token * (a.q_heads + 2 * pool.kv_heads) * dim;
  T* q = (T*)a.q_out + (int64_t)token * a.q_heads * dim;
  const float* table = a.table + a.positions[token] * dim;
  for (int h = 0; h < a.q_heads; h++, x += dim)
    rotate(x, a.q_norm, a.eps, table, dim, q + h * dim);
  const int64_t page = a.slots[token] / pool.page_size, offset = a.slots[token] % pool.page_size;
  T* key = (T*)pool.base + page * pool.page_stride + offset * pool.token_stride;
  for (int h = 0; h < pool.kv_heads; h++, x += dim)
    rotate(x, a.k_norm, a.eps, table, dim, key + h * pool.head_stride);
  for (int h = 0; h < pool.kv_heads; h++, x += dim)
    memcpy(key + pool.v_offset + h * pool.head_stride, x, dim * sizeof(T));
}

static void rope(const Rope& a, int token) {
  if (a.pool.is_bf16) return rope_token<bf16>(a, token);
  rope_token<float>(a, token);
}

}  // namespace WALKWAY_LEVEL
