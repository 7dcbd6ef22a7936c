#pragma once

/// \file
/// A group without the transport in its type (group.hpp has the laws).

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/group/call.hpp"
#include "unisono/group/context.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/group/operation_state.hpp"
#include "unisono/group/overlaps.hpp"

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

    /// Runs a collective to its end. Errors: bad_input if the buffers do not fit the call; those of
    /// its group.
    [[gnu::always_inline]] inline void run(const detail::Call& call, const detail::CallBuffer& in,
                                           const detail::CallBuffer& out) {
        std::uint64_t count = 0;
        const std::uint64_t known = known_call(call, in, out, count);
        if (known == 0 || !repeat(known, count, in.data, out.data)) run_new(call, in, out);
    }
    /// The same without waiting.
    [[nodiscard, gnu::always_inline]] inline Operation start(const detail::Call& call, const detail::CallBuffer& in,
                                                             const detail::CallBuffer& out) {
        std::uint64_t count = 0;
        const std::uint64_t known = known_call(call, in, out, count);
        return known == 0 ? start_new(call, in, out) : start_again(known, count, call, in, out);
    }
    /// Starts the sum of `data`, which this rank has multiplied by its weight, and the one of the
    /// weights; then `divide` finds both of these in `numbers`.
    [[nodiscard]] Operation start_mean(const detail::Call& sum, const detail::CallBuffer& data,
                                       const detail::Call& of_weights, double weight,
                                       detail::OperationState::Finish divide);
    /// Starts a send or a receive with the user's tag.
    [[nodiscard]] Operation start_message(schedule::StepKind kind, const detail::CallBuffer& data, int peer, int tag);

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

    /// A call with native schedule and equal counts, by which the group may know an earlier run; 0
    /// if it keeps no such calls, or if the arguments are refused later. Inlined into the typed
    /// functions, where most of the call is constant.
    [[gnu::always_inline]] inline std::uint64_t known_call(const detail::Call& call, const detail::CallBuffer& in,
                                                           const detail::CallBuffer& out, std::uint64_t& count) const;
    [[nodiscard]] bool repeat(std::uint64_t known, std::uint64_t count, const void* input, void* output);
    [[nodiscard]] Operation start_again(std::uint64_t known, std::uint64_t count, const detail::Call& call,
                                        const detail::CallBuffer& in, const detail::CallBuffer& out);
    [[nodiscard]] Operation start_new(const detail::Call& call, const detail::CallBuffer& in,
                                      const detail::CallBuffer& out);
    void run_new(const detail::Call& call, const detail::CallBuffer& in, const detail::CallBuffer& out);
    std::uint32_t begin(const detail::Call& call, const detail::CallBuffer& in, const detail::CallBuffer& out);

    std::shared_ptr<detail::Engine> engine_;
    std::shared_ptr<detail::GroupContext> context_;
};

[[gnu::always_inline]] inline std::uint64_t GroupCore::known_call(const detail::Call& call,
                                                                  const detail::CallBuffer& in,
                                                                  const detail::CallBuffer& out,
                                                                  std::uint64_t& count) const {
    if (call.by.family != nullptr || call.op.state != nullptr || call.caller != Caller::none ||
        !call.input_counts.empty() || (out.type == ElementType::opaque && call.what != Collective::barrier) ||
        (has_root(call.what) && (call.root < 0 || call.root >= size())))
        return 0;
    const auto ranks = static_cast<std::size_t>(size());
    bool fits = ranks != 0;
    switch (call.what) {
    case Collective::all_reduce: count = in.count, fits = fits && out.count == count; break;
    case Collective::reduce: count = in.count, fits = rank() != call.root || out.count == count; break;
    case Collective::broadcast: count = out.count; break;
    case Collective::all_gather: count = in.count, fits = fits && out.count == count * ranks; break;
    case Collective::reduce_scatter: count = out.count, fits = fits && in.count == count * ranks; break;
    case Collective::barrier: break;
    default: return 0;
    }
    const BufferUse use = buffer_use(call.what);
    if (!fits || (detail::uses_both(use, rank() == call.root) &&
                  !detail::overlap_is_allowed(detail::buffers_of(call.what, use, in.data, out.data,
                                                                 count * out.element_bytes, rank(), size()))))
        return 0;
    return detail::call_of(call.what, out.type, call.op.kind, call.root);
}

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include "unisono/arithmetic/compiler_options.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/group/engine.hpp"
#include "unisono/group/engine_definitions.hpp"
#include "unisono/group/sizes.hpp"
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

UNISONO_DEFINITION bool GroupCore::repeat(std::uint64_t known, std::uint64_t count, const void* input, void* output) {
    return engine_->repeat(*context_, known, count, input, output);
}

UNISONO_DEFINITION std::uint32_t GroupCore::begin(const detail::Call& call, const detail::CallBuffer& in,
                                                  const detail::CallBuffer& out) {
    detail::OperationRequest request = detail::request_of(*context_, call, in, out);
    const bool typed = out.type != ElementType::opaque || call.what == Collective::barrier;
    if (typed && call.caller == Caller::none && call.by.family == nullptr && call.input_counts.empty() &&
        call.output_counts.empty())
        request.call = detail::call_of(call.what, out.type, call.op.kind, call.root);
    call.by.plan(*this, call, request);
    return engine_->start(*context_, request);
}

UNISONO_DEFINITION void GroupCore::run_new(const detail::Call& call, const detail::CallBuffer& in,
                                           const detail::CallBuffer& out) {
    const std::uint32_t index = begin(call, in, out);
    engine_->wait(index, context_->timeout);
    engine_->release(index);
}

UNISONO_DEFINITION Operation GroupCore::start_new(const detail::Call& call, const detail::CallBuffer& in,
                                                  const detail::CallBuffer& out) {
    return Operation(*engine_, begin(call, in, out), context_->timeout);
}

UNISONO_DEFINITION Operation GroupCore::start_again(std::uint64_t known, std::uint64_t count, const detail::Call& call,
                                                    const detail::CallBuffer& in, const detail::CallBuffer& out) {
    const std::uint32_t again = engine_->start_again(*context_, known, count, in.data, out.data);
    return again == detail::no_operation ? start_new(call, in, out) : Operation(*engine_, again, context_->timeout);
}

UNISONO_DEFINITION Operation GroupCore::start_mean(const detail::Call& sum, const detail::CallBuffer& data,
                                                   const detail::Call& of_weights, double weight,
                                                   detail::OperationState::Finish divide) {
    const std::uint32_t index = begin(sum, data, data);
    detail::OperationState& operation = engine_->operation(index);
    operation.numbers = {weight, 0.0};
    const auto number = [&](std::size_t place) {
        return detail::CallBuffer{.data = reinterpret_cast<std::byte*>(&operation.numbers[place]),
                                  .count = 1,
                                  .element_bytes = sizeof(double),
                                  .type = ElementType::float64};
    };
    std::uint64_t count = 0;
    const std::uint64_t known = known_call(of_weights, number(0), number(1), count);
    std::uint32_t weights = engine_->start_again(*context_, known, count, &operation.numbers[0], &operation.numbers[1]);
    if (weights == detail::no_operation) weights = begin(of_weights, number(0), number(1));
    operation.companion = weights;
    operation.finish = divide;
    return Operation(*engine_, index, context_->timeout);
}

UNISONO_DEFINITION Operation GroupCore::start_message(schedule::StepKind kind, const detail::CallBuffer& data, int peer,
                                                      int tag) {
    const detail::OperationRequest request = detail::request_of(*context_, kind, data, peer, tag);
    return Operation(*engine_,
                     engine_->start_point_to_point(*context_, kind, peer, static_cast<std::uint32_t>(tag), request),
                     context_->timeout);
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
    const detail::PlanFunction ring = [](GroupCore& group, const detail::Call&, detail::OperationRequest& request) {
        request.plan = &group.plan(schedule::RingAllGather{group.shape()});
    };
    const auto bytes_of = [](Choice& first, std::size_t count) {
        return detail::CallBuffer{
            .data = reinterpret_cast<std::byte*>(&first), .count = count * sizeof(Choice), .type = ElementType::uint8};
    };
    run({.what = Collective::all_gather, .caller = Caller::split, .by = {.plan = ring}}, bytes_of(mine, 1),
        bytes_of(all[0], all.size()));
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

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
