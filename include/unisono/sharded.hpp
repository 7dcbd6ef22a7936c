#pragma once

/// \file
/// Gradients and parameters that are sharded over the ranks. Not in the umbrella, since not every
/// program needs it.
/// - model/unit_pass.hpp: a model in units, which these shardings require, and its pass.
/// - model/resident_units.hpp: `ResidentUnits`, such a model with all its memory on every rank.
/// - sharding/gradient.hpp: `GradientSharding`, ZeRO's second stage.
/// - sharding/parameter.hpp: `ParameterSharding`, ZeRO's third stage.

#include "unisono/model/resident_units.hpp"
#include "unisono/model/unit_pass.hpp"
#include "unisono/sharding/gradient.hpp"
#include "unisono/sharding/parameter.hpp"
#include "unisono/trainer/units/store.hpp"
#include "unisono/unisono.hpp"
