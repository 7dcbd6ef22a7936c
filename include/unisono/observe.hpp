#pragma once

/// \file
/// Metrics of classification, and files of metrics: JSON lines, CSV, TensorBoard's.

#include "unisono/extensions/observe/classification.hpp"
#include "unisono/extensions/observe/metric_files.hpp"
#include "unisono/extensions/observe/tensorboard.hpp"
#include "unisono/unisono.hpp"
