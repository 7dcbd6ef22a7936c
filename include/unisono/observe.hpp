#pragma once

/// \file
/// Metrics of classification, and files of metrics: JSON lines, CSV, TensorBoard's.

#include "unisono/observe/classification.hpp"
#include "unisono/observe/metric_files.hpp"
#include "unisono/observe/tensorboard.hpp"
#include "unisono/unisono.hpp"
