#pragma once

/// \file
/// Choices by cost: AutomaticReducer, AutomaticSharding, and the times by which they choose.

#include "unisono/extensions/automatic/cost_model.hpp"
#include "unisono/extensions/automatic/predicted_costs.hpp"
#include "unisono/extensions/automatic/reducer.hpp"
#include "unisono/extensions/automatic/sharding.hpp"
#include "unisono/extensions/automatic/sharding_costs.hpp"
#include "unisono/unisono.hpp"
