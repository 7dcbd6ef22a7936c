#pragma once

/// \file
/// A group: ranks that act together over one transport.
///
/// Laws: all ranks of a group start its collectives in the same order with the same arguments (what
/// must agree is compared, a mismatch is an error on every rank that names both sides). Several
/// operations may be in flight, on one group or on several that share a rank. One thread drives a
/// rank. After a fault every call on every group of the world throws it.

#include "unisono/core/list.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/text.hpp"
#include "unisono/group/engine.hpp"
#include "unisono/group/engine_definitions.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/schedule/ring.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Passed to `Group::split` by a rank that joins none of the new groups.
inline constexpr int no_colour = -1;

/// Ranks that act together. Move-only; the world is one, and `split` makes others. One thread
/// drives a rank.
template <transport Transport>
class Group {
public:
    using transport_type = Transport;

    /// The world of an endpoint.
    explicit Group(Transport endpoint = Transport())
        : engine_(std::make_shared<detail::Engine<Transport>>(std::move(endpoint))) {
        set_context(world_id, engine_->endpoint().rank(), engine_->endpoint().size(), {});
    }
    Group(Group&&) noexcept = default;
    Group& operator=(Group&&) noexcept = default;

    /// This rank's number, 0 to size() - 1; -1 in an empty group.
    [[nodiscard]] int rank() const { return context_->rank; }
    /// Ranks in the group; 0 for the group that `split` gives to a rank with `no_colour`.
    [[nodiscard]] int size() const { return context_->size(); }
    /// True if the group contains all ranks of the transport.
    [[nodiscard]] bool is_world() const { return context_->id == world_id; }
    /// A rank's number in the world, for messages.
    [[nodiscard]] int world_rank(int rank) const { return context_->world_rank(rank); }

    /// The ranks of the group that share a host; nullptr if the transport does not know. Lives as
    /// long as the group.
    [[nodiscard]] const HostMap* hosts() const { return context_->hosts.ranks() != 0 ? &context_->hosts : nullptr; }

    /// Sets how long a call may wait before it fails with `timeout` (initially 10 minutes). Must be
    /// positive.
    void set_timeout(std::chrono::nanoseconds timeout) {
        if (timeout.count() <= 0) refuse_input({"a timeout must be positive, found ", timeout.count(), " ns"});
        context_->timeout = timeout.count();
    }
    [[nodiscard]] std::chrono::nanoseconds timeout() const { return std::chrono::nanoseconds(context_->timeout); }

    /// Makes new groups, one per colour, with ranks ordered by (key, rank in this group).
    /// Collective. A colour is at least 0, or `no_colour`. Cost: one all_gather of 12 bytes per
    /// rank. Errors: refused, on the ranks of a new group, if the transport has no room for more
    /// groups; there is room again when others have ended on all of their ranks. (MPI 4.0, section
    /// 7.4.2)
    [[nodiscard]] Group split(int colour, int key);

    /// Ends all communication of the world: every rank's pending and later calls throw this fault
    /// (or an earlier one).
    void abort(const Fault& fault);

    /// Throws the world's first fault, if there is one, including one that so far only the job's
    /// control plane knows. Cheap.
    void check();

    /// Advances operations in flight, for programs that compute between start and wait.
    void progress();

    /// `count` zeros, in memory that the transport moves without copying it first: use it for data
    /// that are communicated often. It may outlive the group. Errors: bad_input (too many bytes),
    /// refused (no memory).
    template <element T>
    [[nodiscard]] Memory<T> allocate(std::size_t count) {
        std::size_t bytes = 0;
        if (__builtin_mul_overflow(count, sizeof(T), &bytes))
            refuse_input({"allocate: ", count, " elements of ", sizeof(T), " bytes are more than memory can hold"});
        const auto entry = engine_->enter();
        Transport& transport = engine_->endpoint();
        if constexpr (allocates<Transport>) {
            return Memory<T>(transport.allocate(bytes), count);
        } else {
            return Memory<T>(detail::memory_for_rank(transport.rank(), bytes), count);
        }
    }

    /// True if the transport moves these elements without copying them first: always true for
    /// transports without memory of their own.
    template <element T>
    [[nodiscard]] bool is_shared([[maybe_unused]] std::span<const T> elements) const {
        if constexpr (reaches_memory<Transport>) {
            return engine_->endpoint().reaches(elements.data(), elements.size_bytes());
        } else {
            return true;
        }
    }

    /// The traffic of this rank in this group so far.
    [[nodiscard]] const Traffic& traffic() const { return context_->traffic; }

    [[nodiscard]] Transport& endpoint() { return engine_->endpoint(); }
    [[nodiscard]] const Transport& endpoint() const { return engine_->endpoint(); }

    // --- for collective/: untyped operations ---

    template <collective_schedule Schedule>
    [[nodiscard]] const detail::Plan& plan(const Schedule& schedule) {
        return context_->plans.find(schedule);
    }
    [[nodiscard]] schedule::Shape shape(int root = 0) const { return {size(), rank(), root}; }
    [[nodiscard]] detail::Engine<Transport>& engine() { return *engine_; }
    [[nodiscard]] detail::GroupContext& context() { return *context_; }

    /// Waits for work of all ranks on their devices: calls `is_done()` repeatedly.
    template <class IsDone>
    void wait_for_devices(const char* operation, const char* what, IsDone is_done) {
        const auto entry = engine_->enter();
        Transport& endpoint = engine_->endpoint();
        const nanoseconds until = deadline_after(endpoint.now(), timeout());
        for (std::uint32_t attempt = 0; !is_done(); ++attempt) {
            engine_->progress(); // others may wait for operations that this rank has started
            engine_->throw_if_faulty();
            if (endpoint.now() >= until) {
                endpoint.abort({.code = ErrorCode::timeout,
                                .rank = endpoint.rank(),
                                .peer = -1,
                                .operation = operation,
                                .sequence = 0,
                                .message = concat({"rank ", endpoint.rank(), " waited ", context_->timeout / 1'000'000,
                                                   " ms for ", what})});
            }
            endpoint.idle(attempt, until);
        }
    }

    /// Runs an operation to its end.
    void run(detail::OperationRequest& request) { finish(engine_->start(*context_, request)); }
    void finish(std::uint32_t index);
    [[nodiscard]] Operation handle(std::uint32_t index) { return Operation(*engine_, index, context_->timeout); }

private:
    explicit Group(std::shared_ptr<detail::Engine<Transport>> engine) : engine_(std::move(engine)) {}

    void set_context(std::uint64_t id, int rank, int ranks, detail::List<int> members);

    /// Opens the new group's part of the device's library; all ranks of this group take part.
    void open_on_device([[maybe_unused]] std::uint64_t id, [[maybe_unused]] int colour, [[maybe_unused]] int key) {
        if constexpr (enqueues<Transport>) {
            const auto entry = engine_->enter();
            Transport& endpoint = engine_->endpoint();
            endpoint.open_group(context_->id, id, colour, key);
            wait_for_devices("split", "the new group's communicator", [&] { return endpoint.group_is_open(); });
        }
    }

    static constexpr std::uint64_t world_id = 1;
    static constexpr int none_left = -1;

    [[nodiscard]] int offer_board() {
        const auto entry = engine_->enter();
        if constexpr (gives_boards<Transport>) return engine_->endpoint().offer_board();
        else return none_left;
    }
    [[nodiscard]] std::uint64_t take_board(std::uint64_t id, [[maybe_unused]] int board, [[maybe_unused]] bool mine,
                                           [[maybe_unused]] int ranks) {
        const auto entry = engine_->enter();
        if constexpr (gives_boards<Transport>) {
            if (mine) engine_->endpoint().give_board(ranks);
            id = engine_->endpoint().with_board(id, board);
        }
        return id;
    }
    /// If boards are given, the context returns this rank's part of one at its end.
    [[nodiscard]] std::shared_ptr<detail::GroupContext> new_context(std::uint64_t id) {
        std::shared_ptr<detail::GroupContext> made;
        if constexpr (enqueues<Transport>) {
            made.reset(new detail::GroupContext, [engine = engine_](detail::GroupContext* done) {
                if (done->id != world_id && done->size() != 0) engine->endpoint().close_group(done->id);
                delete done;
            });
        } else if constexpr (gives_boards<Transport>) {
            made.reset(new detail::GroupContext, [engine = engine_](detail::GroupContext* done) {
                const auto entry = engine->enter();
                if (done->id != world_id && done->size() != 0) engine->endpoint().drop_board(done->id);
                delete done;
            });
        } else {
            made = std::make_shared<detail::GroupContext>();
        }
        made->id = id;
        return made;
    }

    /// A plain all_gather of `bytes` bytes per rank, for `split`.
    void gather_words(const void* mine, void* all, std::size_t bytes);

    static std::uint64_t mix(std::uint64_t seed, std::uint64_t value) { // splitmix64's finaliser
        std::uint64_t z = seed + 0x9e3779b97f4a7c15u * (value + 1);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

    std::shared_ptr<detail::Engine<Transport>> engine_;
    std::shared_ptr<detail::GroupContext> context_;
};

template <transport Transport>
Group<Transport> Group<Transport>::split(int colour, int key) {
    if (size() == 0) refuse_input("this rank is in no group: it gave no_colour to split");
    if (colour < 0 && colour != no_colour) {
        refuse_input({"a colour must be at least 0, or no_colour; rank ", rank(), " gave ", colour});
    }
    struct Choice {
        int colour;
        int key;
        int board; ///< that this rank's transport has to give
    };
    const Choice mine{colour, key, offer_board()};
    std::vector<Choice> all(static_cast<std::size_t>(size()));
    gather_words(&mine, all.data(), sizeof(Choice));
    detail::List<int> members;
    for (int peer = 0; peer < size(); ++peer) {
        if (colour != no_colour && all[static_cast<std::size_t>(peer)].colour == colour) members.push_back(peer);
    }
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
        return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
    });
    const auto me = std::find(members.begin(), members.end(), rank());
    const int new_rank = me == members.end() ? -1 : static_cast<int>(me - members.begin());
    std::uint64_t id = mix(mix(context_->id, ++context_->splits), static_cast<std::uint64_t>(colour));
    const int ranks = static_cast<int>(members.size());
    if constexpr (gives_boards<Transport>) {
        const auto giver = std::find_if(members.begin(), members.end(), [&](int member) {
            return all[static_cast<std::size_t>(member)].board != none_left;
        });
        if (ranks != 0 && giver == members.end())
            throw error(ErrorCode::refused, "split: the world has room for no more groups");
        if (ranks != 0) id = take_board(id, all[static_cast<std::size_t>(*giver)].board, *giver == rank(), ranks);
    }
    for (int& member : members) member = world_rank(member);
    Group made(engine_);
    made.set_context(id, new_rank, ranks, std::move(members));
    made.context_->timeout = context_->timeout;
    if constexpr (enqueues<Transport>) open_on_device(id, colour, new_rank);
    return made;
}

template <transport Transport>
void Group<Transport>::abort(const Fault& fault) {
    const auto entry = engine_->enter();
    engine_->endpoint().abort(fault);
}

template <transport Transport>
void Group<Transport>::check() {
    const auto entry = engine_->enter();
    if constexpr (looks_for_faults<Transport>) engine_->endpoint().look();
    engine_->throw_if_faulty();
}

template <transport Transport>
void Group<Transport>::progress() {
    engine_->progress();
    check();
}

template <transport Transport>
void Group<Transport>::finish(std::uint32_t index) {
    engine_->wait(index, context_->timeout);
    engine_->release(index);
}

template <transport Transport>
void Group<Transport>::set_context(std::uint64_t id, int rank, int ranks, detail::List<int> members) {
    const auto entry = engine_->enter();
    context_ = new_context(id);
    context_->rank = rank;
    context_->ranks = ranks;
    context_->members = std::move(members);
    context_->done_ahead.reserve(16); // so that a step does not allocate when operations first end out of order
    if (context_->size() == 0) return;
    Transport& endpoint = engine_->endpoint();
    if constexpr (knows_hosts<Transport>) {
        detail::List<int> hosts;
        for (int peer = 0; peer < ranks; ++peer) hosts.push_back(endpoint.host_of(world_rank(peer)));
        context_->hosts = HostMap(std::span<const int>(hosts.data(), hosts.size()));
    }
    if constexpr (announces<Transport>) {
        context_->announcements = endpoint.announcements(id, context_->size());
    }
    if constexpr (Transport::maps_peers) {
        context_->board = endpoint.mapped_board(id, context_->size());
        for (int peer = 0; peer < ranks; ++peer) context_->shifts.push_back(endpoint.shift(world_rank(peer)));
    }
}

template <transport Transport>
void Group<Transport>::gather_words(const void* mine, void* all, std::size_t bytes) {
    detail::OperationRequest request;
    request.plan = &plan(schedule::RingAllGather{shape()});
    request.input = static_cast<const std::byte*>(mine);
    request.output = static_cast<std::byte*>(all);
    request.partition = detail::Partition::uniform(bytes);
    request.element = ElementType::uint8;
    request.count = bytes;
    request.caller = Caller::split;
    run(request);
}

UNISONO_NAMESPACE_END
