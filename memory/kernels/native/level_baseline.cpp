// Whatever every CPU of this architecture has: SSE2 on x86-64, NEON on aarch64.
#define WALKWAY_LEVEL baseline
#define WALKWAY_WIDTH 4

#include "level.h"

DEFINE_LEVEL(baseline_level, "baseline")
