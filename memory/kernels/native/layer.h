// The small row-wise kernels of a decoder layer. Each row is computed by itself, in fp32.
#pragma once

#include "args.h"
#include "simd.h"

namespace WALKWAY_LEVEL {

template <typename T>
INLINE T* row_of(const void* p, int row, int width) {
  return (T*)p + (int64_t)row * width;
}

// out = x / rms(x) * weight. `out` may be `x`.
template <typename T, typename O>
INLINE void norm(const T* x, const void* weight, float eps, int width, O* out) {
  F squares{};
  for (int i = 0; i < width; i += W) {
    F v = load(x + i);
    squares = fma(v, v, squares);
  }
  const F scale = splat(1.0f / __builtin_sqrtf(sum_lanes(squares) / (float)width + eps));
  for (int i = 0; i < width; i += W)
    store(out + i, load(x + i) * scale * load((const O*)weight + i));
}

// a: x, b: weight.
template <typename T>
INLINE void rms_norm_row(const Rows& a, int row) {
  norm(row_of<T>(a.a, row, a.width), a.b, a.eps, a.width, row_of<T>(a.out, row, a.width));
}

// a: residual, updated to residual + b; c: weight. The norm is taken of the rounded sum.
template <typename T>
INLINE void add_rms_norm_row(const Rows& a, int row) {
  T* residual = row_of<T>(a.a, row, a.width);
  const T* x = row_of<T>(a.b, row, a.width);
  for (int i = 0; i < a.width; i += W) store(residual + i, load(residual + i) + load(x + i));
  norm(residual, a.c, a.eps, a.width, row_of<T>(a.out, row, a.width));
}

// a: gate and up side by side, each `width` wide.
template <typename T>
INLINE void silu_and_mul_row(const Rows& a, int row) {
  const T* gate = row_of<T>(a.a, row, 2 * a.width);
  T* out = row_of<T>(a.out, row, a.width);
  for (int i = 0; i < a.width; i += W) {
    F x = load(gate + i);
    store(out + i, x / (exp(-x) + 1.0f) * load(gate + a.width + i));
  }
}

static void rms_norm(const Rows& a, int row) {
  if (a.is_bf16) return rms_norm_row<bf16>(a, row);
  rms_norm_row<float>(a, row);
}

static void add_rms_norm(const Rows& a, int row) {
  if (a.is_bf16) return add_rms_norm_row<bf16>(a, row);
  add_rms_norm_row<float>(a, row);
}

static void silu_and_mul(const Rows& a, int row) {
  if (a.is_bf16) return silu_and_mul_row<bf16>(a, row);
  silu_and_mul_row<float>(a, row);
}

// a: fp32 logits; out: int64, the first index of the largest, -1 where a NaN is among them or
// all are -inf.
static void argmax(const Rows& a, int row) {
  const float* x = row_of<float>(a.a, row, a.width);
  const int whole = a.width - a.width % W;
  F top = splat(-__builtin_inff());
  I nan{};
  for (int i = 0; i < whole; i += W) {
    F v = load(x + i);
    top = v > top ? v : top;
    nan |= v != v;
  }
  float max = max_lanes(top);
  bool bad = false;
  for (int i = 0; i < W; i++) bad |= nan[i] != 0;
  for (int i = whole; i < a.width; i++) {
    max = x[i] > max ? x[i] : max;
    bad |= x[i] != x[i];
  }
  bad |= max == -__builtin_inff();
  int64_t index = 0;
  while (!bad && x[index] != max) index++;
  ((int64_t*)a.out)[row] = bad ? -1 : index;
}

}  // namespace WALKWAY_LEVEL
