#pragma once

/// \file
/// All that makes the same bits on any cluster, and proves it: beside the umbrella, since not every program needs it.
///
/// | header | what |
/// |---|---|
/// | sampler/replicas.hpp (in the umbrella) | `Replicas`: a global batch that does not depend on the number of ranks |
/// | trainer/reproducible.hpp | `Reproducible`: gradients, losses and weights whose sums depend on the addends alone; `NarrowReproducible`: with half of the bytes |
/// | trainer/verify_reproducible.hpp | `verify_reproducible`: does the model itself give the same bits? |
/// | trainer/hashes.hpp | `state_hash`, `HashLog`: ranks compared, runs compared |
/// | collective/reproducible_sum.hpp | `reproducible_sum`, `GridSum`: the same for arrays of your own |
/// | arithmetic/square_sum.hpp | `SquareSum`: norms that do not depend on slices and ranks |
/// | arithmetic/narrow_grid.hpp | `NarrowGrid`: 4 bytes an element instead of 8, and a coarser bound |
/// | arithmetic/grid.hpp | the grid; also compiles under -ffast-math |

#include "unisono/arithmetic/grid.hpp"
#include "unisono/arithmetic/grid_sum.hpp"
#include "unisono/arithmetic/narrow_grid.hpp"
#include "unisono/arithmetic/square_sum.hpp"
#include "unisono/collective/reproducible_sum.hpp"
#include "unisono/observe/hash_log.hpp"
#include "unisono/trainer/hashes.hpp"
#include "unisono/trainer/reproducible.hpp"
#include "unisono/trainer/verify_reproducible.hpp"
#include "unisono/unisono.hpp"
