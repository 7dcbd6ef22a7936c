#pragma once

/// \file
/// Ranks in virtual time: links with latency and bandwidth, or the hosts of a ClusterModel; seeded
/// delay, reordering, loss and crashes. The same executor runs on it as on real transports. The
/// seed determines everything: equal seeds give equal traces, to the bit.
///
/// Two ways to use it (unisono/simulate.hpp):
/// - `Simulation`: one thread runs thousands of ranks through collectives that were started on all
///   of them.
/// - `simulate(ranks, options, body)` and `run<Simulated>(ranks, body)`: whole programs, each rank
///   a thread of its own, of which exactly one runs at a time. A rank that waits hands over to the
///   rank with the earliest event. Computing takes no virtual time unless a rank calls `compute`.
///   Deadlines are virtual as well, so waiting for one costs nothing.
///
/// No rank hangs: if no event can wake any rank, all get a fault that says which rank waits for
/// which.

#include "unisono/extensions/simulated/world.hpp"
#include "unisono/transport/endpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// The transport of one simulated rank; on its own a world of one.
class Simulated : public Endpoint {
public:
    static constexpr std::string_view name = "simulated";
    static constexpr bool maps_peers = false;
    static constexpr bool virtual_time = true;           ///< time passes in `idle` only
    static constexpr std::size_t exchange_bytes = 16384; ///< as over sockets: sent within a latency
    using World = detail::SimulatedWorld;

    Simulated() : Simulated(std::make_shared<World>(1), 0) {}
    Simulated(std::shared_ptr<World> world, int rank)
        : Endpoint(rank, world->size(), {.name = name, .virtual_time = true}), world_(std::move(world)) {
        world_->enter(rank);
        fault_word_ = &world_->fault_word();
    }
    Simulated(Simulated&&) noexcept = default;
    Simulated& operator=(Simulated&&) = delete;
    ~Simulated() override {
        if (world_ != nullptr) world_->leave(rank());
    }

    /// Virtual nanoseconds since the world began.
    [[nodiscard]] nanoseconds now() const override { return world_->now(rank()); }

    bool send(int peer, const Envelope& envelope, const std::byte* data, Token token) override {
        return world_->send(rank(), peer, envelope, data, token);
    }
    void receive(int peer, const Envelope& expected, Token token, std::byte*) override {
        world_->post_receive(rank(), peer, expected.tag, token);
    }
    void progress(EndpointSink& sink) override { world_->progress(rank(), sink); }
    void idle(std::uint32_t, nanoseconds until) override { world_->idle(rank(), until); }

    void abort(const Fault& fault) override { world_->abort(rank(), fault); }
    [[nodiscard]] const Fault* fault() const override { return world_->first_fault(); }
    [[nodiscard]] Presence presence(int peer) override {
        return world_->has_left(peer) ? Presence::left : Presence::here;
    }
    [[nodiscard]] GroupBoard open(std::uint64_t context, std::span<const int> members) override {
        return {world_->announcements(context, static_cast<int>(members.size())), {}, {}};
    }
    void close(std::uint64_t context) noexcept override { world_->drop_board(context); }

    /// This rank computes for `duration` of virtual time: messages to it wait meanwhile.
    void compute(nanoseconds duration) { world_->compute(rank(), duration); }
    /// This rank accesses memory that it shares with others, which takes the latency and jitter of
    /// a message.
    void reach_shared_memory() { world_->reach(rank()); }
    /// The messages and bytes of this rank so far.
    [[nodiscard]] const SimulatedRank& statistics() const { return world_->statistics(rank()); }

private:
    std::shared_ptr<World> world_;
};

static_assert(transport<Simulated>);

UNISONO_NAMESPACE_END
