// AVX2 and FMA. The target is opened before any include and never closed, so
// that templates are instantiated under it too; hence no standard library header here.
#if defined(__x86_64__)
#pragma GCC target("avx2,fma")
#define WALKWAY_LEVEL avx2
#define WALKWAY_WIDTH 8

#include "level.h"

DEFINE_LEVEL(avx2_level, "avx2")
#endif
