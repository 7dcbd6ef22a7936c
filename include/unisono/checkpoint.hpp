#pragma once

/// \file
/// A training's state in files: save, and resume with any number of ranks.

#include "unisono/checkpoint/checkpoints.hpp"
#include "unisono/unisono.hpp"
