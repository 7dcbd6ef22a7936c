#include "world.hpp"

#include "unisono/collective/reproducible_sum.hpp"
#include "unisono/join_any.hpp"

#include <algorithm>
#include <span>

namespace unisono_torch {
namespace {

/// Calls use(T{}) with the floating type.
template <class Use>
auto with_floating(un::ElementType type, Use use) {
    switch (type) {
    case un::ElementType::float64: return use(double{});
    case un::ElementType::bfloat16: return use(un::bfloat16{});
    case un::ElementType::float16: return use(un::float16{});
    default: return use(float{});
    }
}

} // namespace

std::optional<un::Operation> sum_on_grid(World& world, un::ElementType type, void* data, std::size_t count,
                                         const un::detail::GridStretch& stretch) {
    if (!world.core().maps_peers() || world.size() == 1 || count == 0) return std::nullopt;
    return with_floating(type, [&](auto zero) -> std::optional<un::Operation> {
        using T = decltype(zero);
        const un::detail::GridMap map{&stretch, 0, 1.0};
        const un::detail::CallBuffer all = un::detail::buffer_at(static_cast<T*>(data), count);
        return world.core().start({.what = un::Collective::all_reduce, .op = un::detail::grid_reduction<T>(map)}, all,
                                  all);
    });
}

std::unique_ptr<World> make_world(int rank, int size, StoreFunctions store, std::chrono::milliseconds timeout,
                                  const std::string& transport, const std::vector<std::string>& hosts) {
    un::AnyJoinOptions options{.transport = transport, .hosts = hosts};
    options.join.rendezvous.timeout = timeout;
    options.join.rendezvous.linger = std::min<std::chrono::nanoseconds>(timeout, std::chrono::minutes(5));
    return std::make_unique<World>(un::join_any(un::identity_of(rank, size), store, "unisono", options));
}

bool has_grid(un::ElementType type) {
    return type == un::ElementType::float32 || type == un::ElementType::float64 || type == un::ElementType::bfloat16 ||
           type == un::ElementType::float16;
}

std::int32_t needed_exponent(un::ElementType type, const void* data, std::size_t count) {
    return with_floating(type, [&](auto zero) {
        using T = decltype(zero);
        return un::needed_exponent(std::span<const T>(static_cast<const T*>(data), count));
    });
}

un::Grid grid_above(un::ElementType type, std::int32_t needed, std::int64_t addends) {
    return with_floating(type, [&](auto zero) { return un::Grid::above<decltype(zero)>(needed, addends); });
}

void put_on_grid(un::ElementType type, bool add, std::int64_t* image, const void* data, std::size_t count,
                 const un::Grid& grid) {
    with_floating(type, [&](auto zero) {
        using T = decltype(zero);
        const std::span<std::int64_t> to(image, count);
        const std::span<const T> from(static_cast<const T*>(data), count);
        return add ? un::add_to_grid(to, from, 1.0, grid) : un::to_grid(to, from, 1.0, grid);
    });
}

void take_from_grid(un::ElementType type, void* out, const std::int64_t* image, std::size_t count,
                    const un::Grid& grid) {
    with_floating(type, [&](auto zero) {
        using T = decltype(zero);
        return un::from_grid(std::span<T>(static_cast<T*>(out), count), std::span<const std::int64_t>(image, count),
                             grid);
    });
}

} // namespace unisono_torch
