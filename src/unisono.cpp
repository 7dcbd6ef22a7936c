// The library unisono::compiled: what a program in compiled mode does not compile itself (include/unisono/core/config.hpp).
#define UNISONO_IMPLEMENTATION
#include "unisono/unisono.hpp"

// Extensions with definitions, or with certificates that are proven here.
#include "unisono/arithmetic/square_sum.hpp"
#include "unisono/automatic.hpp"
#include "unisono/extensions/observe/classification.hpp"
#include "unisono/master_weights.hpp"
#include "unisono/trainer/reproducible.hpp"
#include "unisono/trainers.hpp"
#include "unisono/updates.hpp"
