#pragma once

/// \file
/// A group without the transport in its type (group.hpp has the laws).

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/group/context.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/group/operation_state.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>

UNISONO_NAMESPACE_BEGIN

class Endpoint; // transport/endpoint.hpp
namespace detail {
class Engine; // group/engine.hpp
} // namespace detail

/// Passed to `Group::split` by a rank that joins none of the new groups.
inline constexpr int no_colour = -1;

/// All of a group that does not depend on its transport. A program names `Group<Transport>`, which
/// derives from it. Move-only.
class GroupCore {
public:
    /// This rank's number, 0 to size() - 1; -1 in an empty group.
    [[nodiscard]] int rank() const { return context_->rank; }
    /// Ranks in the group; 0 for the group that `split` gives to a rank with `no_colour`.
    [[nodiscard]] int size() const { return context_->size(); }
    /// True if the group contains all ranks of the transport.
    [[nodiscard]] bool is_world() const { return context_->id == world_id; }
    /// A rank's number in the world, which messages and faults use.
    [[nodiscard]] int world_rank(int rank) const { return context_->world_rank(rank); }
    /// This rank's number in the world.
    [[nodiscard]] int world_rank() const { return world_rank(rank()); }
    /// A fault caused by rank `rank` of this group. The message is "rank N " followed by `what`,
    /// and names the rank by its number in the world.
    [[nodiscard]] Fault blame(ErrorCode code, int rank, std::string operation,
                              std::initializer_list<detail::TextPart> what) const {
        const int known_as = world_rank(rank);
        return {.code = code,
                .rank = known_as,
                .operation = std::move(operation),
                .message = concat({"rank ", known_as, " "}) + concat(what)};
    }

    /// The hosts of the group's ranks; nullptr if the transport does not know them. Lives as long
    /// as the group.
    [[nodiscard]] const HostMap* hosts() const { return context_->hosts.ranks() != 0 ? &context_->hosts : nullptr; }

    /// Sets how long a call may wait before it fails with `timeout` (initially 10 minutes). Must be
    /// positive.
    void set_timeout(std::chrono::nanoseconds timeout) {
        if (timeout.count() <= 0) refuse_input({"a timeout must be positive, found ", timeout.count(), " ns"});
        context_->timeout = timeout.count();
    }
    [[nodiscard]] std::chrono::nanoseconds timeout() const { return std::chrono::nanoseconds(context_->timeout); }

    /// Ends all communication of the world: pending and later calls of every rank throw this fault
    /// (or an earlier one).
    void abort(const Fault& fault);

    /// Throws the world's first fault, if there is one, including a fault that only the job's
    /// control plane knows yet. Cheap.
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
        return Memory<T>(allocate_bytes(bytes), count);
    }

    /// True if the transport moves these elements without copying them first: always true for
    /// transports without memory of their own.
    template <element T>
    [[nodiscard]] bool is_shared(std::span<const T> elements) const {
        return reaches(elements.data(), elements.size_bytes());
    }

    /// The traffic of this rank in this group so far.
    [[nodiscard]] const Traffic& traffic() const { return context_->traffic; }

    // --- for collective/: untyped operations ---

    template <collective_schedule Schedule>
    [[nodiscard]] const detail::Plan& plan(const Schedule& schedule) {
        return context_->plans.find(schedule);
    }
    [[nodiscard]] schedule::Shape shape(int root = 0) const { return {size(), rank(), root}; }
    [[nodiscard]] detail::Engine& engine() { return *engine_; }
    [[nodiscard]] detail::GroupContext& context() { return *context_; }

    /// Waits for work of all ranks on their devices: calls `is_done(of)` repeatedly. `what`: for
    /// the text of a timeout.
    void wait_for_devices(const char* operation, const char* what, bool (*is_done)(void*), void* of);

    /// Held by a caller of the endpoint.
    [[nodiscard]] detail::Entry enter();
    /// Starts an operation. Its number is valid until `finish`, or until its handle ends.
    std::uint32_t start(detail::OperationRequest& request);
    std::uint32_t start_point_to_point(schedule::StepKind kind, int peer, std::uint32_t tag,
                                       const detail::OperationRequest& request);
    /// See Engine::repeat.
    bool repeat(std::uint64_t call, std::uint64_t count, const void* input, void* output);
    std::uint32_t start_again(std::uint64_t call, std::uint64_t count, const void* input, void* output);
    /// The state of an operation in flight.
    [[nodiscard]] detail::OperationState& operation(std::uint32_t index);

    /// Runs an operation to its end.
    void run(detail::OperationRequest& request) { finish(start(request)); }
    void finish(std::uint32_t index);
    [[nodiscard]] Operation handle(std::uint32_t index);

protected: // also moves: a group keeps its transport
    /// The world of an endpoint.
    explicit GroupCore(std::unique_ptr<Endpoint> endpoint);
    GroupCore(GroupCore&&) noexcept = default;
    GroupCore& operator=(GroupCore&&) noexcept = default;

    /// See `Group::split`.
    [[nodiscard]] GroupCore split(int colour, int key);
    [[nodiscard]] Endpoint& core_endpoint() const;

private:
    explicit GroupCore(std::shared_ptr<detail::Engine> engine) : engine_(std::move(engine)) {}

    void open(std::uint64_t id, int rank, int ranks, detail::List<int> members);

    static constexpr std::uint64_t world_id = 1;

    [[nodiscard]] std::shared_ptr<std::byte> allocate_bytes(std::size_t bytes);
    [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const;

    /// A plain all_gather of `bytes` bytes per rank, for `split`.
    void gather_words(const void* mine, void* all, std::size_t bytes);

    std::shared_ptr<detail::Engine> engine_;
    std::shared_ptr<detail::GroupContext> context_;
};

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include "unisono/arithmetic/compiler_options.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/group/engine.hpp"
#include "unisono/group/engine_definitions.hpp"
#include "unisono/schedule/ring.hpp"

#include <algorithm>
#include <vector>

UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION GroupCore::GroupCore(std::unique_ptr<Endpoint> endpoint)
    : engine_(std::make_shared<detail::Engine>(std::move(endpoint))) {
    detail::check_compiler_options();
    open(world_id, core_endpoint().rank(), core_endpoint().size(), {});
}

UNISONO_DEFINITION Endpoint& GroupCore::core_endpoint() const { return engine_->endpoint(); }

UNISONO_DEFINITION detail::Entry GroupCore::enter() { return engine_->enter(); }

UNISONO_DEFINITION std::uint32_t GroupCore::start(detail::OperationRequest& request) {
    return engine_->start(*context_, request);
}

UNISONO_DEFINITION std::uint32_t GroupCore::start_point_to_point(schedule::StepKind kind, int peer, std::uint32_t tag,
                                                                 const detail::OperationRequest& request) {
    return engine_->start_point_to_point(*context_, kind, peer, tag, request);
}

UNISONO_DEFINITION bool GroupCore::repeat(std::uint64_t call, std::uint64_t count, const void* input, void* output) {
    return engine_->repeat(*context_, call, count, input, output);
}

UNISONO_DEFINITION std::uint32_t GroupCore::start_again(std::uint64_t call, std::uint64_t count, const void* input,
                                                        void* output) {
    return engine_->start_again(*context_, call, count, input, output);
}

UNISONO_DEFINITION detail::OperationState& GroupCore::operation(std::uint32_t index) {
    return engine_->operation(index);
}

UNISONO_DEFINITION Operation GroupCore::handle(std::uint32_t index) {
    return Operation(*engine_, index, context_->timeout);
}

UNISONO_DEFINITION void GroupCore::finish(std::uint32_t index) {
    engine_->wait(index, context_->timeout);
    engine_->release(index);
}

UNISONO_DEFINITION std::shared_ptr<std::byte> GroupCore::allocate_bytes(std::size_t bytes) {
    const auto entry = engine_->enter();
    return core_endpoint().allocate(bytes);
}

UNISONO_DEFINITION bool GroupCore::reaches(const void* data, std::size_t bytes) const {
    return core_endpoint().reaches(data, bytes);
}

UNISONO_DEFINITION void GroupCore::abort(const Fault& fault) {
    const auto entry = engine_->enter();
    core_endpoint().abort(fault);
}

UNISONO_DEFINITION void GroupCore::check() {
    const auto entry = engine_->enter();
    core_endpoint().look();
    engine_->throw_if_faulty();
}

UNISONO_DEFINITION void GroupCore::progress() {
    engine_->progress();
    check();
}

UNISONO_DEFINITION void GroupCore::wait_for_devices(const char* operation, const char* what, bool (*is_done)(void*),
                                                    void* of) {
    const auto entry = engine_->enter();
    Endpoint& endpoint = core_endpoint();
    const nanoseconds until = deadline_after(endpoint.now(), timeout());
    for (std::uint32_t attempt = 0; !is_done(of); ++attempt) {
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

UNISONO_DEFINITION GroupCore GroupCore::split(int colour, int key) {
    if (size() == 0) refuse_input("this rank is in no group: it gave no_colour to split");
    if (colour < 0 && colour != no_colour) {
        refuse_input({"a colour must be at least 0, or no_colour; rank ", world_rank(), " gave ", colour});
    }
    struct Choice {
        int colour;
        int key;
        int board; ///< a board that this rank's transport can give; -1: none is left
    };
    Choice mine{colour, key, -1};
    {
        const auto entry = engine_->enter();
        mine.board = core_endpoint().offer_board();
    }
    std::vector<Choice> all(static_cast<std::size_t>(size()));
    gather_words(&mine, all.data(), sizeof(Choice));
    detail::List<int> members;
    for (int peer = 0; peer < size(); ++peer) {
        if (colour != no_colour && all[static_cast<std::size_t>(peer)].colour == colour) members.push_back(peer);
    }
    detail::insertion_sort(members, [&](int a, int b) { // most programs pass them in order
        return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
    });
    const auto me = std::find(members.begin(), members.end(), rank());
    const int new_rank = me == members.end() ? -1 : static_cast<int>(me - members.begin());
    std::uint64_t id =
        detail::split_mix(detail::split_mix(context_->id, ++context_->splits), static_cast<std::uint64_t>(colour));
    const int ranks = static_cast<int>(members.size());
    const auto giver = std::find_if(members.begin(), members.end(),
                                    [&](int member) { return all[static_cast<std::size_t>(member)].board >= 0; });
    if (ranks != 0 && giver == members.end())
        throw error(ErrorCode::refused, "split: the world has room for no more groups");
    if (ranks != 0) {
        const auto entry = engine_->enter();
        id = core_endpoint().take_board(id, all[static_cast<std::size_t>(*giver)].board, *giver == rank(), ranks);
    }
    for (int& member : members) member = world_rank(member);
    GroupCore made(engine_);
    made.open(id, new_rank, ranks, std::move(members));
    made.context_->timeout = context_->timeout;
    if (detail::OwnRuns* const own = engine_->own(); own != nullptr && own->has_groups()) {
        const auto entry = engine_->enter();
        own->open_group(context_->id, id, colour, new_rank);
        const auto is_open = [](void* of) { return static_cast<detail::OwnRuns*>(of)->group_is_open(); };
        wait_for_devices("split", "the new group's communicator", is_open, own);
    }
    return made;
}

UNISONO_DEFINITION void GroupCore::open(std::uint64_t id, int rank, int ranks, detail::List<int> members) {
    const auto entry = engine_->enter();
    context_.reset(new detail::GroupContext, [engine = engine_](detail::GroupContext* done) {
        const auto inside = engine->enter();
        if (done->id != world_id && done->size() != 0) engine->close_group(done->id);
        delete done;
    });
    context_->id = id;
    context_->rank = rank;
    context_->ranks = ranks;
    context_->members = std::move(members);
    context_->done_ahead.reserve(16); // so that the first operation that ends out of order does not allocate
    if (ranks == 0) return;
    Endpoint& endpoint = core_endpoint();
    detail::List<int> all;
    for (int peer = 0; peer < ranks; ++peer) all.push_back(world_rank(peer));
    if (endpoint.knows_hosts()) {
        detail::List<int> hosts;
        for (const int peer : all) hosts.push_back(endpoint.host_of(peer));
        context_->hosts = HostMap(std::span<const int>(hosts.data(), hosts.size()));
    }
    GroupBoard board = endpoint.open(id, {all.data(), all.size()});
    context_->announcements = board.announcements;
    context_->board = board.lines;
    context_->shifts = std::move(board.shifts);
}

UNISONO_DEFINITION void GroupCore::gather_words(const void* mine, void* all, std::size_t bytes) {
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
#endif // UNISONO_DEFINES
