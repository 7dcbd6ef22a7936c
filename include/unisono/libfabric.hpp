#pragma once

/// \file
/// Ranks on any hosts, over libfabric: `join<Libfabric>()` for processes that a launcher has
/// started, `run<Libfabric>(n, body)` for threads of this process. Needs libfabric's headers: link
/// unisono::libfabric. Not part of the umbrella.

#include "unisono/extensions/libfabric/libfabric.hpp"
#include "unisono/join.hpp"
