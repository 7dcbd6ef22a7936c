#pragma once

/// \file
/// Gradients and parameters that are sharded over the ranks. Not in the umbrella, since not every
/// program needs it.
/// - extensions/sharded/unit_pass.hpp: a model in units, which these shardings require, and its
///   pass.
/// - extensions/sharded/resident_units.hpp: `ResidentUnits`, such a model with all its memory on
///   every rank.
/// - extensions/sharded/policies.hpp: `GradientSharding`, ZeRO's second stage.
/// - extensions/sharded/policies.hpp: `ParameterSharding`, ZeRO's third stage.

#include "unisono/extensions/sharded/policies.hpp"
#include "unisono/extensions/sharded/resident_units.hpp"
#include "unisono/extensions/sharded/store.hpp"
#include "unisono/extensions/sharded/unit_pass.hpp"
#include "unisono/unisono.hpp"
