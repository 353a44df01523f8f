// Ends a level's source: the table of its kernels.
#pragma once

#include "attend.h"
#include "layer.h"
#include "matmul.h"
#include "rope.h"

#define DEFINE_LEVEL(symbol, name)                                                            \
  const Level symbol = {name,                    WALKWAY_WIDTH,                               \
                        WALKWAY_LEVEL::attend,   WALKWAY_LEVEL::rope,                         \
                        WALKWAY_LEVEL::rms_norm, WALKWAY_LEVEL::add_rms_norm,                 \
                        WALKWAY_LEVEL::silu_and_mul, WALKWAY_LEVEL::argmax,                   \
        WALKWAY_LEVEL::lay_strip, WALKWAY_LEVEL::multiply};
