// The part of the library unisono::compiled that has checkpoint/ (include/unisono/core/config.hpp).
#ifndef UNISONO_COMPILED
#define UNISONO_COMPILED
#endif
#define UNISONO_BUILDS_PART UNISONO_PART_CHECKPOINT
#include "unisono/extensions/checkpoint/checkpoints.hpp"
