#pragma once

/// \file
/// Arithmetic on memory of a GPU, or of any other system of Thrust: `ThrustArithmetic`; `update_on`
/// for optimizers; `DeviceModel` with `ThrustCopies` for a Trainer. Needs Thrust: link
/// unisono::thrust. Not part of the umbrella.

#include "unisono/extensions/thrust/thrust.hpp"
#include "unisono/extensions/thrust/update.hpp"
