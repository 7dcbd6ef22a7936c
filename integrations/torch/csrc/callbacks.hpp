#pragma once

/// \file
/// Threads that run callbacks of futures. They never advance a group, so a callback may wait for
/// any other operation.
///
/// Callbacks run one after the other, about in the order in which their works ended. Those of a
/// work that a callback started are one level deeper, and run while that callback waits. A callback
/// that takes longer than a moment lets the next one begin; the moments grow with the number of
/// callbacks that have begun, so that their threads stay few.

#include "unisono/core/time.hpp"

#include <functional>

namespace unisono_torch {

namespace un = unisono;

/// Runs `callback` when it is its turn, on another thread unless none can be had. It must not
/// throw.
void run_callback(int level, std::function<void()> callback);

/// The level of works that the calling thread starts: 0 outside of callbacks.
[[nodiscard]] int callback_level();

/// Waits until no callback runs or waits for its turn. Returns false if `until` has passed.
bool await_callbacks(un::nanoseconds until);

} // namespace unisono_torch
