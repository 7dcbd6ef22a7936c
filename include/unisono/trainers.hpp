#pragma once

/// \file
/// Rarer parts around a Trainer: a search for the batch size, a loss over all samples, files of
/// traces, and DataParallel, for comparison.

#include "unisono/extensions/trainers/batch_size.hpp"
#include "unisono/extensions/trainers/data_parallel.hpp"
#include "unisono/extensions/trainers/full_batch.hpp"
#include "unisono/extensions/trainers/trace.hpp"
#include "unisono/unisono.hpp"
