#pragma once

/// \file
/// Everything for equal bits on any cluster, and for proving them. Not in the umbrella, since not
/// every program needs it.
/// - sampler/replicas.hpp (in the umbrella): `Replicas`, a global batch that does not depend on the
///   number of ranks.
/// - trainer/reproducible.hpp: `Reproducible`, sums of gradients, losses and weights that depend on
///   the addends alone; `NarrowReproducible`, with half the bytes.
/// - trainer/verify_reproducible.hpp: `verify_reproducible` tests whether the model itself gives
///   the same bits.
/// - trainer/hashes.hpp: `state_hash` and `HashLog` compare ranks and runs.
/// - collective/reproducible_sum.hpp: `reproducible_sum` and `GridSum`, the same for your own
///   arrays.
/// - arithmetic/square_sum.hpp: `SquareSum`, norms that do not depend on slices and ranks.
/// - arithmetic/narrow_grid.hpp: `NarrowGrid`, 4 bytes per element instead of 8, and a coarser
///   bound.
/// - arithmetic/grid.hpp: the grid; also compiles under -ffast-math.

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
