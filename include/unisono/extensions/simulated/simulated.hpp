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

#include "unisono/core/config.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/simulated/happenings.hpp"
#include "unisono/transport/board.hpp"
#include "unisono/transport/endpoint.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The turns of the threads of a simulated world. A mutex passes the shared state from one to the
/// next.
class SimulatedTurns {
public:
    explicit SimulatedTurns(int ranks) : expected_(ranks), mine_(static_cast<std::size_t>(ranks)) {}

    /// Adds a rank's thread, and returns when it is its turn. The last thread to enter calls
    /// `begin(ranks)`, which returns the rank that runs first.
    template <class Begin>
    void enter(int rank, Begin begin) {
        std::unique_lock lock(mutex_);
        if (++entered_ == expected_) give(begin(expected_));
        wait(lock, rank);
    }

    /// Says that no thread will come for `rank` and the ranks after it, and calls `note()` before
    /// any rank runs, also if some are still to enter; false if all have come already.
    template <class Note, class Begin>
    bool expect_only(int rank, Note note, Begin begin) {
        const std::lock_guard lock(mutex_);
        if (entered_ == expected_) return false;
        note();
        expected_ = rank;
        if (entered_ == expected_ && expected_ != 0) give(begin(expected_));
        return true;
    }

    /// Lets `next` run (-1: no rank is left), and makes `rank` wait for its next turn.
    void pass(int next, int rank) {
        std::unique_lock lock(mutex_);
        give(next);
        wait(lock, rank);
    }
    void pass_for_good(int next) {
        const std::lock_guard lock(mutex_);
        give(next);
    }

private:
    void give(int rank) {
        running_ = rank;
        if (rank >= 0) mine_[static_cast<std::size_t>(rank)].notify_one();
    }
    void wait(std::unique_lock<std::mutex>& lock, int rank) {
        mine_[static_cast<std::size_t>(rank)].wait(lock, [&] { return running_ == rank; });
    }

    std::mutex mutex_;
    int running_ = -1;
    int entered_ = 0;
    int expected_;
    std::vector<std::condition_variable> mine_;
};

/// A simulated world as its ranks use it. Exactly one rank runs at a time, so only the hand-over
/// from one rank's thread to the next is locked.
class SimulatedWorld final : public SimulatedHappenings {
public:
    enum class Drive : std::uint8_t {
        threads, ///< each rank is a thread, which waits for its turn
        caller   ///< one thread runs all ranks: it asks which one has work
    };

    explicit SimulatedWorld(int size, SimulationOptions options = {}, Drive drive = Drive::threads)
        : SimulatedHappenings(size, std::move(options)), drive_(drive), turns_(drive == Drive::threads ? size : 0) {}

    Announcements announcements(std::uint64_t context, int size) {
        Announced& place = announcements_[context];
        if (place.ranks == nullptr) {
            place.ranks = std::make_unique<Announcements::Rank[]>(static_cast<std::size_t>(size));
            place.users = size;
        }
        return Announcements(place.ranks.get());
    }
    /// A rank of a group ends the group. The announcements are deleted when all ranks have done so.
    void drop_board(std::uint64_t context) noexcept {
        const auto found = announcements_.find(context);
        if (found != announcements_.end() && --found->second.users == 0) announcements_.erase(found);
    }

    /// Begins a rank's thread: returns when all have come and it is this one's turn.
    void enter(int rank) {
        if (drive_ == Drive::caller) return;
        turns_.enter(rank, [this](int ranks) { return begin(ranks); });
    }

    void leave(int rank) {
        Rank& me = at(rank);
        me.gone = true;
        if (!me.statistics.crashed) {
            me.left = true;
            me.statistics.finished_at = std::max(me.statistics.finished_at, now(rank));
        }
        record(TraceKind::left, rank, rank, 0, {});
        if (drive_ == Drive::threads) hand_over(rank, false);
    }

    /// True if the message has left already; else its token is reported when it has.
    bool send(int rank, int peer, const Envelope& envelope, const std::byte* data, Token token) {
        Rank& me = at(rank);
        me.fruitless = 0;
        if (me.statistics.crashed || has_fault_ != 0) return true;
        ++messages_sent_;
        bytes_sent_ += envelope.bytes;
        ++me.under_way;
        ++me.statistics.messages_sent;
        me.statistics.bytes_sent += envelope.bytes;
        const std::uint32_t index = messages_.make(envelope, data);
        SimulatedMessage& message = messages_[index];
        message.from = rank;
        message.to = peer;
        message.token = token;
        message.view = me.view;
        const SimulatedNetwork::Times times = network_.send(message, now(rank));
        record(TraceKind::sent, rank, peer, envelope.bytes, envelope.tag);
        if (options_.cluster) me.busy_until = times.sender_free;
        const bool done = (envelope.bytes <= options_.eager_bytes && !options_.cluster) || times.departure <= now(rank);
        if (!done) {
            // In a cluster the acknowledgement may come after the message is released.
            const std::uint32_t kept = options_.cluster ? messages_.make({}, nullptr) : index;
            if (kept != index) acknowledge(messages_[kept], rank, token, me.view);
            events_.push(times.departure, SimulatedEvent::Kind::departure, kept);
        }
        events_.push(times.arrival, SimulatedEvent::Kind::arrival, index);
        return done;
    }

    void post_receive(int rank, int peer, const Tag& tag, Token token) {
        Rank& me = at(rank);
        me.fruitless = 0;
        std::uint64_t message = 0;
        if (me.matches.take_or_put(SimulatedMatches::Kind::message, peer, tag, message, token)) {
            me.inbox.push_back({token, static_cast<std::uint32_t>(message)});
            if (drive_ == Drive::caller) make_ready(rank);
        }
    }

    template <class Sink>
    void progress(int rank, Sink& sink) {
        Rank& me = at(rank);
        end_if_crashed(me);
        if (has_fault_ != 0) return; // the memory may be gone
        if (me.inbox.empty()) {
            // A rank that polls repeatedly without waiting must not stop the world's clock.
            if (drive_ == Drive::caller || ++me.fruitless < 3) return;
            look_again_later(rank, me);
            if (has_fault_ != 0 || me.inbox.empty()) return;
        }
        me.fruitless = 0;
        polls_in_vain_ = 0;
        for (std::size_t i = 0; i < me.inbox.size(); ++i) {
            const Delivery delivery = me.inbox[i];
            if (delivery.message == departed) {
                sink.sent(delivery.token);
                continue;
            }
            const SimulatedMessage& message = messages_[delivery.message];
            if (options_.cluster) me.busy_until = now(rank) + network_.overhead(message);
            ++me.statistics.messages_received;
            me.statistics.bytes_received += message.envelope.bytes;
            sink.received(delivery.token, message.envelope, message.data());
            messages_.release(delivery.message);
        }
        me.inbox.clear();
        me.statistics.finished_at = now(rank);
    }

    /// Lets other ranks run until there is an event for this rank, or until `until`.
    void idle(int rank, nanoseconds until) {
        Rank& me = at(rank);
        end_if_crashed(me);
        me.fruitless = 0;
        if (!me.inbox.empty() || has_fault_ != 0 || now(rank) >= until) return;
        if (drive_ == Drive::caller) return idle_alone(rank, me, until);
        me.wake_at = until;
        if (until != never) arm(rank, until);
        hand_over(rank, true);
        me.wake_at = never;
        end_if_crashed(me);
    }

    /// The rank computes: it notices no other rank, and no other rank notices it.
    void compute(int rank, nanoseconds duration) {
        if (duration < 0 || duration > SimulationOptions::longest)
            refuse_input({"compute: found ", duration, " ns, expected 0 to ", SimulationOptions::longest});
        Rank& me = at(rank);
        end_if_crashed(me);
        me.fruitless = 0;
        me.busy_until = now(rank) + duration;
        if (drive_ == Drive::caller || duration == 0 || has_fault_ != 0) return;
        me.computes = true;
        arm(rank, me.busy_until);
        hand_over(rank, true);
        me.computes = false;
        end_if_crashed(me);
    }

    /// The rank accesses memory that ranks share: the seed determines the order of the ranks.
    void reach(int rank) { compute(rank, network_.reach(rank)); }

    /// Ends the world; all ranks learn the first fault. A crashed rank reports nothing.
    void abort(int rank, const Fault& fault) {
        if (drive_ == Drive::threads) {
            const auto note = [&] {
                fault_ = fault;
                has_fault_ = 1;
            };
            // No thread could be made for it.
            if (turns_.expect_only(rank, note, [this](int ranks) { return begin(ranks); })) return;
        }
        if (has_fault_ != 0 || at(rank).statistics.crashed) return;
        Fault explained = fault;
        explain(explained);
        spread(std::move(explained));
    }

private:
    static void end_if_crashed(const Rank& rank) {
        if (rank.statistics.crashed) throw SimulatedCrash();
    }

    static void acknowledge(SimulatedMessage& message, int rank, Token token, std::uint64_t view) {
        message.from = rank;
        message.token = token;
        message.acknowledgement = true;
        message.view = view;
    }

    int begin(int ranks) {
        for (int rank = 0; rank < ranks; ++rank) make_ready(rank);
        for (int rank = ranks; rank < size_; ++rank) at(rank).left = at(rank).gone = true;
        return next_ready();
    }

    /// Lets the next rank run; this one waits for its next turn, or has left.
    void hand_over(int rank, bool waits) {
        int next = next_ready();
        if (next < 0 && anybody_left() && has_fault_ == 0) {
            spread(deadlock("no message is in flight and no deadline is set"));
            next = next_ready();
        }
        if (!waits) turns_.pass_for_good(next);
        else if (next != rank) turns_.pass(next, rank);
    }

    void look_again_later(int rank, Rank& me) {
        if (++polls_in_vain_ > most_polls_in_vain) return spread(deadlock("ranks poll for a message that never comes"));
        const std::uint32_t doublings = me.fruitless < 16 ? 0 : std::min(me.fruitless - 16, 10u);
        me.wake_at = std::max(clock_, me.busy_until) + (options_.poll_ns << doublings);
        arm(rank, me.wake_at);
        hand_over(rank, true);
        me.wake_at = never;
        end_if_crashed(me);
    }

    /// The wait of a rank if one thread runs all ranks: no other rank can do anything meanwhile.
    void idle_alone(int rank, const Rank& me, nanoseconds until) {
        while (me.inbox.empty() && has_fault_ == 0) {
            if (events_.empty() && until == never)
                return spread(deadlock("no message is in flight and no deadline is set"));
            if (events_.empty() || events_.next_time() > until) {
                clock_ = until;
                return;
            }
            pass_time();
            end_if_crashed(at(rank));
        }
    }

    static constexpr std::uint32_t most_polls_in_vain = 1'000'000;

    Drive drive_;
    SimulatedTurns turns_;
    std::uint32_t polls_in_vain_ = 0;
    struct Announced {
        std::unique_ptr<Announcements::Rank[]> ranks;
        int users = 0; ///< ranks that have not dropped them
    };
    std::unordered_map<std::uint64_t, Announced> announcements_;
};

} // namespace detail

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
