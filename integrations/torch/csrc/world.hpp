#pragma once

/// \file The ranks of one process group, behind virtual functions: the only part of the extension
/// that includes transports. It does not depend on PyTorch.

#include "unisono/arithmetic/grid_sum.hpp"
#include "unisono/collective/untyped.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/time.hpp"
#include "unisono/group/operation.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unisono_torch {

namespace un = unisono;

using Counts = std::span<const std::size_t>;

class World {
public:
    World() = default;
    World(const World&) = delete;
    World& operator=(const World&) = delete;
    virtual ~World() = default;

    [[nodiscard]] virtual std::string_view transport() const = 0;
    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;

    [[nodiscard]] virtual un::Operation all_reduce(const un::Elements& elements, const void* in, void* out,
                                                   std::size_t count, const un::Reduction& reduction) = 0;
    [[nodiscard]] virtual un::Operation broadcast(const un::Elements& elements, void* data, std::size_t count,
                                                  int root) = 0;
    [[nodiscard]] virtual un::Operation reduce(const un::Elements& elements, const void* in, void* out,
                                               std::size_t count, const un::Reduction& reduction, int root) = 0;
    [[nodiscard]] virtual un::Operation all_gather(const un::Elements& elements, const void* in, std::size_t mine,
                                                   void* out, Counts counts) = 0;
    [[nodiscard]] virtual un::Operation reduce_scatter(const un::Elements& elements, const void* in, void* out,
                                                       std::size_t mine, const un::Reduction& reduction,
                                                       Counts counts) = 0;
    [[nodiscard]] virtual un::Operation gather(const un::Elements& elements, const void* in, std::size_t mine,
                                               void* out, int root) = 0;
    [[nodiscard]] virtual un::Operation scatter(const un::Elements& elements, const void* in, void* out,
                                                std::size_t mine, int root) = 0;
    [[nodiscard]] virtual un::Operation all_to_all(const un::Elements& elements, const void* in, void* out,
                                                   Counts send_counts, Counts receive_counts) = 0;
    [[nodiscard]] virtual un::Operation barrier() = 0;
    [[nodiscard]] virtual un::Operation send(const un::Elements& elements, const void* data, std::size_t count,
                                             int peer, int tag) = 0;
    [[nodiscard]] virtual un::Operation receive(const un::Elements& elements, void* data, std::size_t count, int peer,
                                                int tag) = 0;

    /// If peers' memory is mapped: data = the sum of all ranks' data on this grid. Otherwise
    /// nothing starts. `stretch` must outlive the operation.
    [[nodiscard]] virtual std::optional<un::Operation> sum_on_grid(un::ElementType type, void* data, std::size_t count,
                                                                   const un::detail::GridStretch& stretch) = 0;

    /// Waits briefly for the peers: longer as `attempt` grows, and at most until `until`.
    virtual void idle(std::uint32_t attempt, un::nanoseconds until) = 0;
    /// Whether `wake` ends `idle`. Any thread may call `wake`.
    [[nodiscard]] virtual bool wakes() const { return false; }
    virtual void wake() {}
    virtual void abort(const un::Fault& fault) = 0;
};

/// A store that all ranks see, see `un::key_value_store`.
struct StoreFunctions {
    std::function<void(const std::string& key, const std::string& value)> put;
    std::function<std::string(const std::string& key, un::nanoseconds deadline)> fetch;

    void set(const std::string& key, const std::string& value) { put(key, value); }
    std::string get(const std::string& key, un::nanoseconds deadline) { return fetch(key, deadline); }
};

/// The ranks' rendezvous uses the store. `transport`: auto (shared memory on one host, otherwise
/// hosts), shared_memory, hosts or tcp, the same on all ranks. `hosts`: names that separate ranks,
/// see `un::HostsOptions`. Collective. Errors: those of `un::rendezvous` and of the transport;
/// bad_input for another word.
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
