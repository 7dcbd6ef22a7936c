#pragma once

/// \file
/// Rarer reducers: HierarchicalReducer, and AnyReducer, which is named when the program runs.

#include "unisono/reducer/any.hpp"
#include "unisono/reducer/hierarchical.hpp"
#include "unisono/unisono.hpp"
