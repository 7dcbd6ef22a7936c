#pragma once

/// \file
/// DataParallel: one process with several copies of the model, for comparison with Trainer.

#include "unisono/trainer/data_parallel.hpp"
#include "unisono/unisono.hpp"
