#pragma once

/// \file
/// A training's state in files: save, and resume with any number of ranks.

#include "unisono/extensions/checkpoint/checkpoints.hpp"
#include "unisono/extensions/checkpoint/safetensors.hpp"
#include "unisono/unisono.hpp"
