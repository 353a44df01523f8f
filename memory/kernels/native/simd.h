// Vectors of WALKWAY_WIDTH floats for one dispatch level, and the few operations on them that
// the kernels need. A level's .cpp sets WALKWAY_LEVEL (a namespace) and WALKWAY_WIDTH, opens
// its target, and includes the kernels, so each body is compiled once a level.
//
// Nothing here may depend on a value's lane or on how many lanes are in use: a row's result
// must not change with its neighbours. The build uses -ffp-contract=off and `fma` is explicit,
// because a compiler that contracts one instantiation and not another breaks that.
#pragma once

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, I{__VA_ARGS__})
#endif
#define INLINE static inline __attribute__((always_inline))
#define INLINE_MEMBER inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

namespace WALKWAY_LEVEL {

constexpr int W = WALKWAY_WIDTH;
constexpr int BLOCK = 16;          // positions that the online softmax takes at a time
constexpr int BV = BLOCK / W;      // vectors that hold one value a position

typedef float F __attribute__((vector_size(W * 4)));
typedef int32_t I __attribute__((vector_size(W * 4)));
typedef uint32_t U __attribute__((vector_size(W * 4)));
typedef uint16_t H __attribute__((vector_size(W * 2)));
typedef uint16_t bf16;

INLINE F splat(float x) { return x - F{}; }  // x + 0 is not always x, x - 0 is

INLINE F fma(F a, F b, F c) {
#if WALKWAY_WIDTH == 16
  return (F)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif WALKWAY_WIDTH == 8
  return (F)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (F)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

INLINE F load(const float* p) {
  F v;
  memcpy(&v, p, sizeof v);
  return v;
}

// GCC 12 makes five instructions of __builtin_convertvector here.
INLINE F load(const bf16* p) {
  H h;
  memcpy(&h, p, sizeof h);
#if WALKWAY_WIDTH == 8
  return (F)((U)_mm256_cvtepu16_epi32((__m128i)h) << 16);
#else
  return (F)(__builtin_convertvector(h, U) << 16);
#endif
}

INLINE void store(float* p, F v) { memcpy(p, &v, sizeof v); }

// Rounds to nearest, ties to even; a NaN stays one.
INLINE void store(bf16* p, F v) {
  U u = (U)v;
  U rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  U bits = v == v ? rounded : (u >> 16) | 0x40u;
  H h = __builtin_convertvector(bits, H);
  memcpy(p, &h, sizeof h);
}

INLINE F iota() {
#if WALKWAY_WIDTH == 16
  return F{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif WALKWAY_WIDTH == 8
  return F{0, 1, 2, 3, 4, 5, 6, 7};
#else
  return F{0, 1, 2, 3};
#endif
}

#if WALKWAY_WIDTH == 16
#define UNPACK_LO 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define UNPACK_HI 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define PAIR_LO 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define PAIR_HI 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define QUARTER_EVEN 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define QUARTER_ODD 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
#elif WALKWAY_WIDTH == 8
#define UNPACK_LO 0, 8, 1, 9, 4, 12, 5, 13
#define UNPACK_HI 2, 10, 3, 11, 6, 14, 7, 15
#define PAIR_LO 0, 1, 8, 9, 4, 5, 12, 13
#define PAIR_HI 2, 3, 10, 11, 6, 7, 14, 15
#define QUARTER_EVEN 0, 1, 2, 3, 8, 9, 10, 11
#define QUARTER_ODD 4, 5, 6, 7, 12, 13, 14, 15
#else
#define UNPACK_LO 0, 4, 1, 5
#define UNPACK_HI 2, 6, 3, 7
#define PAIR_LO 0, 1, 4, 5
#define PAIR_HI 2, 3, 6, 7
#endif

// In every quarter (four lanes): what four vectors sum to there.
INLINE F sum4(const F* a) {
  F x = SHUFFLE(a[0], a[1], UNPACK_LO) + SHUFFLE(a[0], a[1], UNPACK_HI);
  F y = SHUFFLE(a[2], a[3], UNPACK_LO) + SHUFFLE(a[2], a[3], UNPACK_HI);
  return SHUFFLE(x, y, PAIR_LO) + SHUFFLE(x, y, PAIR_HI);
}

#if WALKWAY_WIDTH > 4
INLINE F join(F x, F y) {
  return SHUFFLE(x, y, QUARTER_EVEN) + SHUFFLE(x, y, QUARTER_ODD);
}
#endif

// a[0..W-1] -> a vector whose lane i is the sum of a[i].
INLINE F sum_each(const F* a) {
#if WALKWAY_WIDTH == 16
  return join(join(sum4(a), sum4(a + 4)), join(sum4(a + 8), sum4(a + 12)));
#elif WALKWAY_WIDTH == 8
  return join(sum4(a), sum4(a + 4));
#else
  return sum4(a);
#endif
}

INLINE float sum_lanes(F v) {
  for (int half = W / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) v[i] += v[i + half];
  return v[0];
}

INLINE float max_lanes(F v) {
  for (int half = W / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) v[i] = v[i] > v[i + half] ? v[i] : v[i + half];
  return v[0];
}

// e^x within 2 ulp; 0 below -87.3, infinite above 88.3; e^NaN is NaN, e^0 is exactly 1.
// Cody-Waite reduction and the minimax polynomial of Cephes' expf.
INLINE F exp(F x) {
  const F magic = splat(12582912.0f);  // 1.5 * 2^23: rounds to an integer when added
  F clamped = x > 88.3f ? splat(88.3f) : x;
  clamped = clamped < -87.3f ? splat(-87.3f) : clamped;
  F shifted = fma(clamped, splat(1.44269504f), magic);
  F n = shifted - magic;
  F r = fma(n, splat(-0.693359375f), clamped);
  r = fma(n, splat(2.12194440e-4f), r);
  F p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + 1.0f;
  I exponent = (I)shifted - (I)magic + 127;
  F value = p * (F)(exponent << 23);
  value = x > 88.3f ? splat(__builtin_inff()) : value;
  return x < -87.3f ? F{} : value;
}

}  // namespace WALKWAY_LEVEL
