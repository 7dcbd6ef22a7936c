#pragma once

/// \file The ranks of one process group, and sums on a grid: the only part of the extension that
/// includes transports. It does not depend on PyTorch.

#include "unisono/any_group.hpp"
#include "unisono/arithmetic/grid_sum.hpp"
#include "unisono/core/time.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace unisono_torch {

namespace un = unisono;

using World = un::AnyGroup;

/// If peers' memory is mapped: data = the sum of all ranks' data on this grid. Otherwise nothing
/// starts. `stretch` must outlive the operation.
[[nodiscard]] std::optional<un::Operation> sum_on_grid(World& world, un::ElementType type, void* data,
                                                       std::size_t count, const un::detail::GridStretch& stretch);

/// A store that all ranks see, see `un::key_value_store`.
struct StoreFunctions {
    std::function<void(const std::string& key, const std::string& value)> put;
    std::function<std::string(const std::string& key, un::nanoseconds deadline)> fetch;

    void set(const std::string& key, const std::string& value) { put(key, value); }
    std::string get(const std::string& key, un::nanoseconds deadline) { return fetch(key, deadline); }
};

/// The ranks' rendezvous uses the store. `transport`: auto (shared memory on one host, otherwise
/// hosts), shared_memory, hosts or tcp, the same on all ranks. `hosts`: names that separate ranks,
/// see `un::HostsOptions`. Collective. Errors: those of `un::join_any`.
std::unique_ptr<World> make_world(int rank, int size, StoreFunctions store, std::chrono::milliseconds timeout,
                                  const std::string& transport, const std::vector<std::string>& hosts);

// --- sums on a grid, by run-time type; float32, float64, bfloat16 and float16 --------------------

[[nodiscard]] bool has_grid(un::ElementType type);
/// The greatest exponent of these elements, see `un::needed_exponent`.
[[nodiscard]] std::int32_t needed_exponent(un::ElementType type, const void* data, std::size_t count);
[[nodiscard]] un::Grid grid_above(un::ElementType type, std::int32_t needed, std::int64_t addends);
/// image = data, or image += data.
void put_on_grid(un::ElementType type, bool add, std::int64_t* image, const void* data, std::size_t count,
                 const un::Grid& grid);
void take_from_grid(un::ElementType type, void* out, const std::int64_t* image, std::size_t count,
                    const un::Grid& grid);

} // namespace unisono_torch
