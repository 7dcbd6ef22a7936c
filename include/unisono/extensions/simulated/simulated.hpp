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

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// The transport of one simulated rank; on its own a world of one.
class Simulated {
public:
    static constexpr std::string_view name = "simulated";
    static constexpr bool maps_peers = false;
    static constexpr bool virtual_time = true;           ///< time passes in `idle` only
    static constexpr std::size_t exchange_bytes = 16384; ///< as over sockets: sent within a latency
    using World = detail::SimulatedWorld;

    Simulated() : Simulated(std::make_shared<World>(1), 0) {}
    Simulated(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) { world_->enter(rank_); }
    Simulated(Simulated&&) noexcept = default;
    Simulated& operator=(Simulated&&) = delete;
    ~Simulated() {
        if (world_ != nullptr) world_->leave(rank_);
    }

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return world_->size(); }
    /// Virtual nanoseconds since the world began.
    [[nodiscard]] nanoseconds now() const { return world_->now(rank_); }

    /// True if the message has left already: then its token is not reported.
    bool post_send(int peer, const Envelope& envelope, const std::byte* data, Token token) {
        return world_->send(rank_, peer, envelope, data, token);
    }
    void post_receive(int peer, const Tag& tag, Token token) { world_->post_receive(rank_, peer, tag, token); }
    template <class Sink>
    void progress(Sink& sink) {
        world_->progress(rank_, sink);
    }
    void idle(std::uint32_t, nanoseconds until) { world_->idle(rank_, until); }

    [[nodiscard]] const std::atomic<std::uint32_t>& fault_word() const { return world_->fault_word(); }
    void abort(const Fault& fault) { world_->abort(rank_, fault); }
    [[nodiscard]] const Fault* first_fault() const { return world_->first_fault(); }
    [[nodiscard]] bool has_left(int peer) const { return world_->has_left(peer); }
    detail::Announcements announcements(std::uint64_t context, int size) {
        return world_->announcements(context, size);
    }
    void drop_board(std::uint64_t context) noexcept { world_->drop_board(context); }

    /// This rank computes for `duration` of virtual time: messages to it wait meanwhile.
    void compute(nanoseconds duration) { world_->compute(rank_, duration); }
    /// This rank accesses memory that it shares with others, which takes the latency and jitter of
    /// a message.
    void reach_shared_memory() { world_->reach(rank_); }
    /// The messages and bytes of this rank so far.
    [[nodiscard]] const SimulatedRank& statistics() const { return world_->statistics(rank_); }

private:
    std::shared_ptr<World> world_;
    int rank_;
};

static_assert(transport<Simulated>);

UNISONO_NAMESPACE_END
