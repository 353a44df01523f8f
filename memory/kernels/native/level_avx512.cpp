// AVX-512 as every CPU since Skylake-SP has it. The target is opened before any include and never closed, so
// that templates are instantiated under it too; hence no standard library header here.
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")
#define WALKWAY_LEVEL avx512
#define WALKWAY_WIDTH 16

#include "level.h"

DEFINE_LEVEL(avx512_level, "avx512")
#endif
