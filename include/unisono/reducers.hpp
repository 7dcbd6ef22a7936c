#pragma once

/// \file
/// Rarer reducers: HierarchicalReducer, and AnyReducer, which is named when the program runs.

#include "unisono/extensions/reducers/any.hpp"
#include "unisono/extensions/reducers/hierarchical.hpp"
#include "unisono/unisono.hpp"
