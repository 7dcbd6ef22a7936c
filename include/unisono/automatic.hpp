#pragma once

/// \file
/// Choices by cost: AutomaticReducer, AutomaticSharding, and the times by which they choose.

#include "unisono/reducer/automatic.hpp"
#include "unisono/reducer/cost_model.hpp"
#include "unisono/reducer/predicted_costs.hpp"
#include "unisono/sharding/automatic.hpp"
#include "unisono/trainer/sharding_costs.hpp"
#include "unisono/unisono.hpp"
