// A matrix product with packed weights. Every output is one chain of fused multiply-adds over
// the inputs in their order, from zero, whatever the number of rows, the threads and the shape
// of the tile it falls into; so a row's bits do not depend on the rows beside it.
#pragma once

#include "args.h"
#include "simd.h"

namespace WALKWAY_LEVEL {

constexpr int AHEAD = 1024;  // bytes of weights: the hardware's prefetch ends with each page

// Weights of a lane and of `DEPTH` inputs that lie together.
template <typename T>
constexpr int DEPTH = 1;
template <>
constexpr int DEPTH<uint32_t> = 2;

INLINE F weight(const float* p, int) { return load(p); }

INLINE F weight(const uint32_t* p, int input) {
  U pairs;
  memcpy(&pairs, p, sizeof pairs);
  return (F)(input ? pairs & 0xffff0000u : pairs << 16);
}

// The vector `sums` belongs to the outputs from `column` on, of which the last may not exist.
INLINE void finish(const Product& a, int row, int column, F sums) {
  if (a.bias) sums += load(a.bias + column);
  const int left = a.outputs - column, lanes = left < W ? left : W;
  if (lanes <= 0) return;
  const int64_t at = (int64_t)row * a.outputs + column;
  float wide[W];
  bf16 narrow[W];
  if (a.is_bf16) {
    store(narrow, sums);
    memcpy((bf16*)a.y + at, narrow, lanes * sizeof(bf16));
  } else {
    store(wide, sums);
    memcpy((float*)a.y + at, wide, lanes * sizeof(float));
  }
}

// R rows by C vectors of outputs. `w` points into the first panel, the next is `panel` on.
template <int R, int C, typename T>
static void tile(const Product& a, Strip strip, const T* w, int64_t panel, int column) {
  const float* x = a.strips + (int64_t)strip.first * even_inputs(a);
  F sums[R][C] = {};
  for (int64_t k = 0; k < panel; k += PANEL) {
    UNROLL for (int c = 0; c < C; c += PANEL / W)
      __builtin_prefetch((const char*)(w + c * W / PANEL * panel + k) + AHEAD);
    UNROLL for (int d = 0; d < DEPTH<T>; d++) {
      F v[C];
      UNROLL for (int c = 0; c < C; c++)
        v[c] = weight(w + c * W / PANEL * panel + c * W % PANEL + k, d);
      UNROLL for (int r = 0; r < R; r++) {
        const F value = splat(x[d * R + r]);
        UNROLL for (int c = 0; c < C; c++) sums[r][c] = fma(value, v[c], sums[r][c]);
      }
    }
    x += DEPTH<T> * R;
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) finish(a, strip.first + r, column + c * W, sums[r][c]);
}

// All of a unit's outputs for the only strip; with few rows as many of them at a time as fill
// the registers, since one chain waits on itself.
template <int R, typename T>
static void only_strip(const Product& a, const T* w, int64_t panel, int column) {
  constexpr int MOST = R == 1 ? 8 : R <= 3 ? 4 : 2, C = MOST * W < UNIT ? MOST : UNIT / W;
  for (int at = 0; at < UNIT; at += C * W)
    tile<R, C>(a, {0, R}, w + at / PANEL * panel + at % PANEL, panel, column + at);
}

template <typename T>
static void all_strips(const Product& a, const T* unit, int64_t panel, int column) {
  const int count = strip_count(a);
  for (int at = 0; at < UNIT; at += 2 * W) {
    const T* w = unit + at / PANEL * panel + at % PANEL;
    for (int i = 0; i < count; i++) {
      const Strip strip = strip_at(a, i);
      if (strip.rows == 3) tile<3, 2>(a, strip, w, panel, column + at);
      if (strip.rows == 4) tile<4, 2>(a, strip, w, panel, column + at);
      if (strip.rows == 5) tile<5, 2>(a, strip, w, panel, column + at);
      if (strip.rows == 6) tile<6, 2>(a, strip, w, panel, column + at);
    }
  }
}

template <typename T>
static void multiply_unit(const Product& a, const T* unit, int column) {
  const int64_t panel = (int64_t)even_inputs(a) / DEPTH<T> * PANEL;
  if (a.rows == 1) return only_strip<1>(a, unit, panel, column);
  if (a.rows == 2) return only_strip<2>(a, unit, panel, column);
  if (a.rows == 3) return only_strip<3>(a, unit, panel, column);
  all_strips(a, unit, panel, column);
}

// To the layout of fp32 weights.
INLINE void widen(const uint32_t* from, int64_t words, float* to) {
  for (int64_t i = 0; i < words; i += PANEL)
    for (int d = 0; d < 2; d++)
      for (int j = 0; j < PANEL; j += W)
        store(to + 2 * i + d * PANEL + j, weight(from + i + j, d));
}

static void multiply(const Product& a, int unit, float* wide) {
  const int64_t size = (int64_t)UNIT * even_inputs(a), at = unit * size;
  if (!a.is_bf16) return multiply_unit(a, (const float*)a.weight + at, unit * UNIT);
  const uint32_t* pairs = (const uint32_t*)a.weight + at / 2;
  if (!widens(a)) return multiply_unit(a, pairs, unit * UNIT);
  widen(pairs, size / 2, wide);
  multiply_unit(a, wide, unit * UNIT);
}

INLINE float widened(float x) { return x; }

INLINE float widened(bf16 x) {
  const uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// A strip's rows of x as the tile reads them: the rows' first values, their second ones, ...
template <typename T>
INLINE void lay_rows(const Product& a, Strip strip) {
  const int inputs = even_inputs(a), rows = strip.rows;
  const T* x = (const T*)a.x + (int64_t)strip.first * a.inputs;
  float* out = a.strips + (int64_t)strip.first * inputs;
  for (int r = 0; r < rows; r++, x += a.inputs) {
    for (int k = 0; k < a.inputs; k++) out[k * rows + r] = widened(x[k]);
    if (inputs > a.inputs) out[a.inputs * rows + r] = 0.0f;
  }
}

static void lay_strip(const Product& a, int index) {
  const Strip strip = strip_at(a, index);
  if (a.is_bf16) return lay_rows<bf16>(a, strip);
  lay_rows<float>(a, strip);
}

}  // namespace WALKWAY_LEVEL
