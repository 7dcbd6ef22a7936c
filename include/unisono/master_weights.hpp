#pragma once

/// \file
/// MasterWeights: a model in 16 bits, trained in float.

#include "unisono/extensions/master_weights/master_weights.hpp"
#include "unisono/unisono.hpp"
