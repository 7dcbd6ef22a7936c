#pragma once

/// \file
/// Choices by cost: AutomaticReducer, and the times by which it chooses.

#include "unisono/extensions/automatic/cost_model.hpp"
#include "unisono/extensions/automatic/predicted_costs.hpp"
#include "unisono/extensions/automatic/reducer.hpp"
#include "unisono/unisono.hpp"
