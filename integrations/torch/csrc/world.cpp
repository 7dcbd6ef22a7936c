#include "world.hpp"

#include "unisono/collective/reproducible_sum.hpp"
#include "unisono/hosts.hpp"
#include "unisono/join.hpp"
#include "unisono/launch.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

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

template <class Transport>
class WorldOf final : public World {
public:
    explicit WorldOf(un::Group<Transport> group) : group_(std::move(group)) {}

    [[nodiscard]] std::string_view transport() const override { return Transport::name; }
    [[nodiscard]] int rank() const override { return group_.rank(); }
    [[nodiscard]] int size() const override { return group_.size(); }

    un::Operation all_reduce(const un::Elements& elements, const void* in, void* out, std::size_t count,
                             const un::Reduction& reduction) override {
        return un::untyped::all_reduce(group_, elements, in, out, count, reduction);
    }
    un::Operation broadcast(const un::Elements& elements, void* data, std::size_t count, int root) override {
        return un::untyped::broadcast(group_, elements, data, count, root);
    }
    un::Operation reduce(const un::Elements& elements, const void* in, void* out, std::size_t count,
                         const un::Reduction& reduction, int root) override {
        return un::untyped::reduce(group_, elements, in, out, count, reduction, root);
    }
    un::Operation all_gather(const un::Elements& elements, const void* in, std::size_t mine, void* out,
                             Counts counts) override {
        return un::untyped::all_gather(group_, elements, in, mine, out, counts);
    }
    un::Operation reduce_scatter(const un::Elements& elements, const void* in, void* out, std::size_t mine,
                                 const un::Reduction& reduction, Counts counts) override {
        return un::untyped::reduce_scatter(group_, elements, in, out, mine, reduction, counts);
    }
    un::Operation gather(const un::Elements& elements, const void* in, std::size_t mine, void* out, int root) override {
        return un::untyped::gather(group_, elements, in, mine, out, root);
    }
    un::Operation scatter(const un::Elements& elements, const void* in, void* out, std::size_t mine,
                          int root) override {
        return un::untyped::scatter(group_, elements, in, out, mine, root);
    }
    un::Operation all_to_all(const un::Elements& elements, const void* in, void* out, Counts send_counts,
                             Counts receive_counts) override {
        return un::untyped::all_to_all(group_, elements, in, out, send_counts, receive_counts);
    }
    un::Operation barrier() override { return un::start_barrier(group_); }
    un::Operation send(const un::Elements& elements, const void* data, std::size_t count, int peer, int tag) override {
        return un::untyped::send(group_, elements, data, count, peer, tag);
    }
    un::Operation receive(const un::Elements& elements, void* data, std::size_t count, int peer, int tag) override {
        return un::untyped::receive(group_, elements, data, count, peer, tag);
    }

    std::optional<un::Operation> sum_on_grid([[maybe_unused]] un::ElementType type, [[maybe_unused]] void* data,
                                             [[maybe_unused]] std::size_t count,
                                             [[maybe_unused]] const un::detail::GridStretch& stretch) override {
        if constexpr (Transport::maps_peers) {
            if (group_.size() == 1 || count == 0) return std::nullopt;
            return with_floating(type, [&](auto zero) -> std::optional<un::Operation> {
                using T = decltype(zero);
                return un::detail::start_sum_on_grid<un::Collective::all_reduce>(
                    group_, std::span<T>(static_cast<T*>(data), count), un::detail::GridMap{&stretch, 0, 1.0});
            });
        } else {
            return std::nullopt;
        }
    }

    void idle(std::uint32_t attempt, un::nanoseconds until) override { group_.endpoint().idle(attempt, until); }
    [[nodiscard]] bool wakes() const override { return std::is_same_v<Transport, un::SharedMemory>; }
    void wake() override {
        if constexpr (std::is_same_v<Transport, un::SharedMemory>) group_.endpoint().wake(group_.rank());
    }
    void abort(const un::Fault& fault) override { group_.abort(fault); }

private:
    un::Group<Transport> group_;
};

template <class Transport>
std::unique_ptr<World> world_of(un::Group<Transport> group) {
    return std::make_unique<WorldOf<Transport>>(std::move(group));
}

} // namespace

std::unique_ptr<World> make_world(int rank, int size, StoreFunctions store, std::chrono::milliseconds timeout,
                                  const std::string& transport, const std::vector<std::string>& hosts) {
    un::JoinOptions options;
    options.rendezvous.timeout = timeout;
    options.rendezvous.linger = std::min<std::chrono::nanoseconds>(timeout, std::chrono::minutes(5));
    const un::nanoseconds deadline = un::deadline_after(un::steady_now(), timeout);
    un::ControlPlane plane = un::rendezvous(un::identity_of(rank, size), store, "unisono", options.rendezvous);
    if (transport == "tcp") return world_of(un::join<un::Tcp>(std::move(plane), options));
    const auto by_hosts = [&] {
        un::Hosts<un::Tcp>::Options separated;
        separated.hosts = hosts;
        return world_of(un::join<un::Hosts<un::Tcp>>(std::move(plane), options, separated));
    };
    if (transport == "hosts") return by_hosts();
    if (transport != "auto" && transport != "shared_memory")
        un::refuse_input({"no transport is called '", transport, "'; expected auto, shared_memory, hosts or tcp"});
    if (transport == "shared_memory" || size == 1 || un::share_one_host(plane, deadline, hosts))
        return world_of(un::join<un::SharedMemory>(std::move(plane), options));
    return by_hosts();
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
