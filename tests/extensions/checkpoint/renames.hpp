#pragma once

// The moment of a rename. The program's own `renameat`, in durable.cpp, calls a function before it.

#include <functional>

namespace unisono_test {

/// Calls the function once, before the next `renameat`.
void before_a_rename(std::function<void()> call);

} // namespace unisono_test
